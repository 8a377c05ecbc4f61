package result

import (
	"errors"
	"fmt"
)

// The tool itself was too slow, for its plan or for the server's events.
var (
	ErrLate = errors.New("the tool sent its requests late")
	ErrSlow = errors.New("the tool read events late")
)

// Verdict is the reason not to trust the figures; nil for none.
func (r *Run) Verdict() error {
	t := r.Totals
	if late := t.MS[Lateness].P99; r.Config.MaxLateUS > 0 && late > float64(r.Config.MaxLateUS)/1000 {
		return fmt.Errorf("%w: 99 %% of them within %.2f ms, the bound is %.2f ms; use a faster machine or a lower rate",
			ErrLate, late, float64(r.Config.MaxLateUS)/1000)
	}
	if wake := float64(r.WakeP99US) / 1000; r.Config.MaxLateUS > 0 && r.WakeP99US > r.Config.MaxLateUS {
		return fmt.Errorf("%w: it woke up within %.2f ms in 99 %% of cases, the bound is %.2f ms; use a faster machine or a lower rate",
			ErrSlow, wake, float64(r.Config.MaxLateUS)/1000)
	}
	switch {
	case r.Interrupted:
		return fmt.Errorf("interrupted after %d requests", t.Completed+t.Failed)
	case t.Completed == 0:
		return fmt.Errorf("no request succeeded, %d failed", t.Failed)
	}
	return nil
}
