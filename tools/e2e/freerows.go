package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"text/tabwriter"
	"time"
)

// abortsAfter returns the times that D's client waits before it leaves.
func abortsAfter() []time.Duration {
	const ms = time.Millisecond
	return []time.Duration{0, ms, 5 * ms, 20 * ms, 50 * ms, 100 * ms}
}

const freeMoments = 10 // of P's time, the last one being its last millisecond

// The reasons for which blocks may wait for their lease.
const (
	leaseUnheard = "P had finished, and its handler was ended before it answered: nobody has the handle"
	leaseGivenUp = "xpyd gives P up after prefill_abort_grace, here 10 ms, and P had finished: nobody has the handle"
)

func (f *freer) rows() []*freeRow {
	rows := []*freeRow{
		{name: "D pulls and answers", times: freeTimes, event: f.toEnd(pinned.decode, http.StatusOK)},
		{name: "D refuses (release)", times: freeTimes, event: f.toEnd(pinned.reject, http.StatusBadRequest)},
		{name: "D decodes one token (drain)", times: freeTimes, event: f.toEnd(pinned.drain, http.StatusOK)},
	}
	for _, pause := range abortsAfter() {
		name := fmt.Sprintf("D's client leaves %d ms after its request was written", pause.Milliseconds())
		rows = append(rows, &freeRow{name: name, times: freeTimes, event: f.abortDecode(pause)})
	}
	rows = append(rows, f.leavingRows("client of xpyd", 3, "", func() string { return f.x.url })...)
	rows = append(rows, &freeRow{
		name: "client of xpyd leaves at each of these once, P given up", times: freeMoments, lease: leaseGivenUp,
		event: func(ctx context.Context, n int) (time.Time, error) { return f.leaveAt(ctx, f.hasty.url, n) },
	})
	// These come last, because their blocks may be pinned for long.
	return append(rows, f.leavingRows("client of P", 2, leaseUnheard, func() string { return f.p.url })...)
}

// leavingRows returns the rows of the ten moments.
func (f *freer) leavingRows(who string, times int, lease string, url func() string) (rows []*freeRow) {
	for m := range freeMoments {
		when := fmt.Sprintf("at %d %% of P's time", 100*m/(freeMoments-1))
		if m == freeMoments-1 {
			when = "in P's last millisecond"
		}
		rows = append(rows, &freeRow{
			name: fmt.Sprintf("%s leaves %s", who, when), times: times, lease: lease,
			event: func(ctx context.Context, _ int) (time.Time, error) { return f.leaveAt(ctx, url(), m) },
		})
	}
	return rows
}

// toEnd sends a request with the handle to D and waits for the answer.
func (f *freer) toEnd(body func(pinned) []byte, want int) func(context.Context, int) (time.Time, error) {
	return func(ctx context.Context, _ int) (time.Time, error) {
		h, err := f.pin(ctx)
		if err != nil {
			return time.Time{}, err
		}
		status, err := f.post(ctx, f.d, body(h))
		if err == nil && status != want {
			err = fmt.Errorf("status %d from D", status)
		}
		return time.Now(), err
	}
}

// abortDecode sends the request with the handle to D and closes the connection.
func (f *freer) abortDecode(pause time.Duration) func(context.Context, int) (time.Time, error) {
	return func(ctx context.Context, _ int) (time.Time, error) {
		h, err := f.pin(ctx)
		if err != nil {
			return time.Time{}, err
		}
		v, err := f.send(ctx, f.d.url, h.decode())
		if err != nil {
			return time.Time{}, err
		}
		time.Sleep(pause)
		v.close()
		return time.Now(), nil
	}
}

// leaveAt makes a client leave at a moment of P's time.
func (f *freer) leaveAt(ctx context.Context, url string, moment int) (time.Time, error) {
	more := map[string]any{}
	if url == f.p.url {
		more["kv_transfer_params"] = prefillParams()
	}
	pause := f.prefill * time.Duration(moment) / (freeMoments - 1)
	if moment == freeMoments-1 {
		pause = f.prefill - rand.N(time.Millisecond)
	}
	v, err := f.send(ctx, url, ask{prompt: randomPrompt(freeTokens), tokens: 1}.body(more))
	if err != nil {
		return time.Time{}, err
	}
	time.Sleep(pause)
	v.close()
	return time.Now(), nil
}

func printFree(rows []*freeRow) {
	tw := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(tw, "P'S BLOCKS ARE FREE AFTER (ms)\tMIN\tMEDIAN\tMAX\tWAIT FOR THE LEASE")
	for _, r := range rows {
		lowest, middle, highest := "", "", ""
		if n := len(r.took); n > 0 {
			lowest, middle, highest = inMs(r.took[0]), inMs(r.took[n/2]), inMs(r.took[n-1])
		}
		waits := fmt.Sprintf("%d of %d", r.waits, r.times)
		if r.waits > 0 && r.lease != "" {
			waits += ": " + r.lease
		}
		_, _ = fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", r.name, lowest, middle, highest, waits)
	}
	_ = tw.Flush()
}

func inMs(d time.Duration) string { return fmt.Sprint(d.Round(time.Millisecond).Milliseconds()) }
