package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Beside other traffic, counters cannot tell requests apart. But a prompt that is far longer than what the others bring in the
// same time moves them so far that nothing else can have. So a few requests with such prompts decide the rows about both legs.
const (
	liveRequests = 4
	liveWords    = 3000 // of a prompt, if the engines have room for so many
	liveWatch    = time.Second
	// liveShare is the most that the others may bring, as a part of the prompts of this command.
	liveShare = 0.25
)

// isBusy reports that other traffic makes something undecidable.
func isBusy(err error) bool {
	var u undecided
	return errors.As(err, &u) && strings.HasPrefix(err.Error(), busyLead)
}

// sendBeside is sendLegs for engines that are never idle.
func sendBeside(ctx context.Context, r *run, l *legs) error {
	first, err := r.read(ctx)
	if err == nil {
		err = first.lacks(prompt)
	}
	if err == nil {
		err = sleep(ctx, liveWatch)
	}
	if err != nil {
		return err
	}
	before, err := r.read(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := l.send(ctx, r, liveRequests, liveWords); err != nil {
		return err
	}
	now, err := r.await(ctx, countWait, func(now reading) bool {
		return since(now.prefill, before.prefill).value[prompt] >= l.tokens && since(now.decode, before.decode).value[external] >= l.tokens
	})
	if err != nil {
		return err
	}
	l.prefill, l.decode = since(now.prefill, before.prefill), since(now.decode, before.decode)
	l.took = [2]int{partOf(now.prefill, before.prefill), partOf(now.decode, before.decode)}
	p, d := since(before.prefill, first.prefill), since(before.decode, first.decode)
	l.others = max(p.value[prompt], d.value[external], d.value[computed]) * time.Since(began).Seconds() / liveWatch.Seconds()
	if l.others > liveShare*l.tokens {
		return undecided{fmt.Errorf(busyLead+"the others bring about %.0f prompt tokens while this command sends %.0f, which is too many to tell them apart", l.others, l.tokens)}
	}
	return nil
}

// beside says in a row how much other traffic there was.
func (l *legs) beside() string {
	if !l.live {
		return ""
	}
	return fmt.Sprintf(" (beside other traffic, of about %.0f tokens)", l.others)
}
