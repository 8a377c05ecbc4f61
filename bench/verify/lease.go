package verify

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"xpyd/kvparams"
)

// lease leaves unread blocks on each prefill engine, and measures the time until they are free. No
// engine reports its kv_lease_duration.
func (r *run) lease(ctx context.Context) Row {
	before, err := r.quiet(ctx)
	if err != nil {
		return failed(err)
	}
	times := make([]time.Duration, len(r.Prefill))
	errs := make([]error, len(r.Prefill))
	var group sync.WaitGroup
	for i, url := range r.Prefill {
		group.Go(func() { times[i], errs[i] = r.takeLease(ctx, url, before.prefill[i]) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return failed(err)
	}
	var wrong, right []string
	for i, t := range times {
		text := fmt.Sprintf("%s: %.1f s", r.Prefill[i], t.Seconds())
		switch slack := leaseSlack(r.Lease); {
		case t < r.Lease-slack:
			wrong = append(wrong, text)
		case t > r.Lease+slack:
			wrong = append(wrong, text+" or longer")
		default:
			right = append(right, text)
		}
	}
	if len(wrong) > 0 {
		return bad("kv.lease is %v, and blocks were held for %s; set kv.lease to the engines' kv_lease_duration", r.Lease, strings.Join(wrong, ", "))
	}
	return good("kv.lease is %v, and blocks were held for %s", r.Lease, strings.Join(right, ", "))
}

// leaseSlack is how far off a measured lease may be, since an engine checks its leases only now and
// then.
func leaseSlack(lease time.Duration) time.Duration { return time.Second + lease/30 }

// takeLease makes an engine pin blocks, and returns how long it holds them. It gives up once that is
// longer than the lease can be.
func (r *run) takeLease(ctx context.Context, url string, before page) (time.Duration, error) {
	if err := r.pin(ctx, url); err != nil {
		return 0, err
	}
	start := time.Now()
	held := false
	for end := start.Add(r.Lease + 2*leaseSlack(r.Lease)); time.Now().Before(end); {
		now, err := r.page(ctx, url)
		switch {
		case err != nil:
			return 0, err
		case now.value[finished] > before.value[finished]+1 || now.value[running] > 0:
			return 0, busy("%s had another request", url)
		case now.value[usedKV] > before.value[usedKV]:
			held = true
		case held:
			return time.Since(start), nil
		case time.Since(start) > countWait:
			return 0, undecided{fmt.Errorf("%s shows no blocks in use for a handle", url)}
		}
		if err := sleep(ctx, look); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// pin sends a prefill leg whose handle nobody will use.
func (r *run) pin(ctx context.Context, url string) error {
	dialect, _ := kvparams.Lookup("nixl")
	var req kvparams.Request
	if err := req.Parse(kvparams.Completions, text(r.greedy(completions, r.prompt(longPrompt), 1))); err != nil {
		return fmt.Errorf("prefill leg: %w", err)
	}
	leg := &kvparams.Leg{ID: "xpyd-verify-lease-" + rand.Text()}
	body := bytes.Join(dialect.AppendPrefill(nil, &req, leg), nil)
	post, err := r.request(ctx, call{base: url, path: completions, key: r.EngineKey, id: leg.ID, body: body})
	if err != nil {
		return err
	}
	answer, err := r.bytes(post)
	if err != nil {
		return undecided{fmt.Errorf("prefill leg on %s: %w", url, err)}
	}
	switch a, err := dialect.ParseAnswer(answer); {
	case err != nil:
		return undecided{fmt.Errorf("prefill leg on %s: %w", url, err)}
	case a.Handle.None():
		return undecided{errors.New("prefill " + url + " answers without a handle, see the row pull")}
	}
	return nil
}
