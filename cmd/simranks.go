package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"

	"xpyd/cmd/config"
	"xpyd/sim"
)

// maxSimRanks is more than anybody tries on one machine.
const maxSimRanks = 64

// runRanks serves several data-parallel ranks on one port until ctx ends. As in vLLM they end together.
func runRanks(ctx context.Context, o sim.Options, n int, fault string, out io.Writer) (err error) {
	if n < 1 || n > maxSimRanks {
		return config.UsageError{Err: fmt.Errorf("--ranks: %d must be from 1 to %d", n, maxSimRanks)}
	}
	if !slices.Contains([]sim.Connector{sim.ConnectorNixl, sim.ConnectorPush, sim.ConnectorShared, sim.ConnectorMooncake, sim.ConnectorP2P, sim.ConnectorSGLang, sim.ConnectorMoriio, sim.ConnectorWrite}, o.Connector) {
		return config.UsageError{Err: fmt.Errorf("--ranks: connector %s takes no ranks; start one engine a rank", o.Connector)}
	}
	if _, port, _ := net.SplitHostPort(o.SideChannel); (port == "" || port == "0") && o.Connector.Neighbours(o.Role) {
		return config.UsageError{Err: fmt.Errorf("--side-channel: %q must have a port, as a leg names that of rank 0; try 127.0.0.1:5600", o.SideChannel)}
	}
	f := sim.Fault{}
	if fault != "" {
		if f, err = sim.ParseFault(fault); err != nil {
			return config.UsageError{Err: err}
		}
	}
	if o.Name == "" {
		o.Name = string(o.Role)
	}
	var engines []*sim.Engine
	defer func() {
		for _, e := range engines {
			err = errors.Join(err, e.Close())
		}
	}()
	var urls []string
	for rank := range n {
		e, err := startRank(o, rank, n, f)
		if err != nil {
			return err
		}
		engines, urls = append(engines, e), append(urls, e.URL())
	}
	front, err := sim.ServeRanks(o.Listen, urls...)
	if err != nil {
		return taken(err)
	}
	defer func() { err = errors.Join(err, front.Close()) }()
	if err := joinBootstraps(front, o, engines); err != nil {
		return taken(err)
	}
	if _, err := fmt.Fprintf(out, "sim %s ready: %s, model %s, ranks %s@0..%d\n", o.Name, front.URL(), o.Model, front.URL(), n-1); err != nil {
		return fmt.Errorf("tell that sim %s is ready: %w", o.Name, err)
	}
	return awaitRanks(ctx, engines)
}

// joinBootstraps opens the bootstrap server of all ranks where o's engines have one each.
func joinBootstraps(front *sim.Ranks, o sim.Options, engines []*sim.Engine) error {
	if o.Connector != sim.ConnectorMooncake || o.Role != sim.RolePrefill {
		return nil
	}
	var ports []int
	for _, e := range engines {
		ports = append(ports, e.BootstrapPort())
	}
	_, err := front.JoinBootstraps(o.Bootstrap, ports...)
	return err
}

// startRank starts the engine of one rank of o.
func startRank(o sim.Options, rank, ranks int, f sim.Fault) (*sim.Engine, error) {
	host, text, _ := net.SplitHostPort(o.SideChannel)
	if port, err := strconv.Atoi(text); err == nil && port > 0 {
		o.SideChannel = net.JoinHostPort(host, strconv.Itoa(port+rank))
	}
	o.Parallel.Rank, o.Parallel.Ranks = rank, ranks
	o.Name, o.Listen, o.Bootstrap = o.Name+"-dp"+strconv.Itoa(rank), "127.0.0.1:0", ""
	if err := o.Validate(); err != nil {
		return nil, config.UsageError{Err: err}
	}
	e, err := sim.Start(o)
	if err != nil {
		return nil, taken(err)
	}
	if err := e.SetFault(f); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// awaitRanks waits until ctx ends, or the first of the engines dies.
func awaitRanks(ctx context.Context, engines []*sim.Engine) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(engines))
	for _, e := range engines {
		go func() { ended <- awaitSim(ctx, e) }()
	}
	err := <-ended
	cancel()
	for range engines[1:] {
		<-ended
	}
	return err
}
