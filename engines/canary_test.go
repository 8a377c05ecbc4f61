package engines

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xpyd/engines/journal"
	"xpyd/engines/progress"
	"xpyd/netio/upstream"
	"xpyd/router"
)

// Only silence counts against an engine, and not what this process lacks.
func TestCanaryAnswers(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want progress.Answer
	}{
		{nil, progress.Replied},
		{statusError(404), progress.Replied},
		{statusError(500), progress.Failed},
		{&upstream.Error{Stage: upstream.StageHead, Err: context.DeadlineExceeded}, progress.Silent},
		{&upstream.Error{Stage: upstream.StageHead, Err: unix.ECONNRESET}, progress.Failed},
		{&upstream.Error{Stage: upstream.StageDial, Err: unix.ECONNREFUSED}, progress.Failed},
		{&upstream.Error{Stage: upstream.StageDial, Err: fmt.Errorf("socket: %w", unix.EMFILE)}, progress.Failed},
		{errors.New("no answer of an engine"), progress.Failed},
	} {
		if got := canaryAnswer(tc.err); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.err, got, tc.want)
		}
	}
}

// What is found of an engine without a role is told of it in both roles.
func TestWedgedEngineWithoutARoleIsToldOfInBothRoles(t *testing.T) {
	cfg := router.DefaultConfig()
	cfg.Engines = router.MustEntries("http://a:1", "http://b:1")
	rt, err := router.New(cfg, 1, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	s := &Set{Journal: journal.New(), cfg: Config{Router: rt}}
	p := rt.Snapshot().Backends(router.Prefill)[0]
	for _, b := range rolesOf(p) {
		s.Journal.Joined(b)
	}
	tellProgress(s, p, progress.Name, progress.Finding{Owed: 3})
	tellProgress(s, p, progress.Drop, progress.Finding{Owed: 3})
	for _, b := range rolesOf(p) {
		if now := s.Journal.Standing(b); now.Error == "" || b.Trouble.Wedged() == nil || b.State() != router.Down {
			t.Errorf("%s: %+v, state %s", b.Role, now, b.State())
		}
	}
	events, _ := s.Journal.Since(0)
	if len(events) != 2 || events[0].Kind != journal.Wedged || events[1].Kind != journal.Down || events[1].Role != "both" {
		t.Errorf("%+v", events)
	}
}
