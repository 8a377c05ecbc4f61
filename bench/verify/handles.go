package verify

import (
	"context"
	"slices"
	"strings"
	"time"

	"xpyd/router"
)

// handles asks xpyd itself: does it have the engines that the command names, and what became of the
// handles?
func (r *run) handles(ctx context.Context) Row {
	var pools struct {
		Encode, Prefill, Decode []struct{ URL, State string }
	}
	if err := r.get(ctx, r.Admin+"/pools", &pools); err != nil {
		return failed(err)
	}
	for _, role := range []struct {
		name  string
		named []string
		has   []struct{ URL, State string }
	}{{"encode", r.Encode, pools.Encode}, {"prefill", r.Prefill, pools.Prefill}, {"decode", r.Decode, pools.Decode}} {
		if role.name == "encode" && len(role.named) == 0 {
			continue // it may be that nobody asks about them
		}
		var has []string
		for _, b := range role.has {
			if b.State != "up" {
				return bad("xpyd says that %s %s is %s", role.name, b.URL, b.State)
			}
			if base, _ := router.SplitRank(b.URL); !slices.Contains(has, base) {
				has = append(has, base)
			}
		}
		if named := slices.Sorted(slices.Values(role.named)); !slices.Equal(named, slices.Sorted(slices.Values(has))) {
			return bad("xpyd's %s engines are %s, but the command names %s", role.name, strings.Join(has, " "), strings.Join(role.named, " "))
		}
	}
	ends, err := r.newEnds(ctx)
	for end := time.Now().Add(r.Settle); err == nil && ends["issued"] > ended(ends) && time.Now().Before(end); {
		if err = sleep(ctx, look); err == nil {
			ends, err = r.newEnds(ctx)
		}
	}
	if err != nil {
		return failed(err)
	}
	if open := ends["issued"] - ended(ends); open > 0 {
		return failed(busy("%v handles have not ended", open))
	}
	if lost := ends["lost"] + ends["expired"]; lost > 0 {
		return bad("of %v handles, %v waited for their lease to end (xpyd_kv_orphans_total has the reasons)", ends["issued"], lost)
	}
	return good("of %v handles, %v were used and %v given back", ends["issued"], ends["burnt"], ends["released"]+ends["drained"])
}

// ended counts the handles that have ended.
func ended(ends map[string]float64) (n float64) {
	for end, count := range ends {
		if end != "issued" {
			n += count
		}
	}
	return n
}

// newEnds counts the handles since this run began, those of other clients too.
func (r *run) newEnds(ctx context.Context) (map[string]float64, error) {
	ends, err := r.ends(ctx)
	for end := range ends {
		ends[end] -= r.handed[end]
	}
	return ends, err
}

// ends counts xpyd's handles by their end, since its start.
func (r *run) ends(ctx context.Context) (map[string]float64, error) {
	page, err := r.metrics(ctx, r.Admin)
	ends := page.By("xpyd_kv_handles_total", "end")
	if n, err := page.Sum("xpyd_kv_handles_issued_total"); err == nil { // otherwise it is an older xpyd, which has them in the first one
		ends["issued"] = n
	}
	return ends, err
}
