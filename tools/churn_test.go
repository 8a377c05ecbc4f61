package main

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"xpyd/cmd/config"
	"xpyd/tools/churn"
)

// shortChurn is a run that a test can wait for. The pools of idle connections are
// emptied within a second, so that the process settles soon. One hit of each phase is enough, because a
// busy machine manages few in so short a time.
func shortChurn(edit func(*config.Config)) churn.Options {
	cfg := config.Default()
	cfg.Timeouts.UpstreamIdle = 700 * time.Millisecond
	cfg.Router.Routing.Poll = 200 * time.Millisecond // on one connection, which is never idle for long
	if edit != nil {
		edit(&cfg)
	}
	return churn.Options{
		Clients: 40, Duration: 2 * time.Second, MinPerPhase: 1, Prefill: 2, Decode: 2, Seed: 1,
		KeepAlive: time.Second, Start: inProcess(cfg, false),
	}
}

func TestChurnLeavesNothingBehind(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	var out bytes.Buffer
	if err := churn.Run(t.Context(), shortChurn(nil), &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{"nothing stays behind", "prefill_end", "half-close", "side-channel connections"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("report lacks %q:\n%s", want, out.String())
		}
	}
}

// A proxy that gives no handle back leaves blocks pinned. churn must see them in the engine, say
// where and how many, and fail.
func TestChurnFailsOnPinnedBlocks(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	var out bytes.Buffer
	err := churn.Run(t.Context(), shortChurn(func(c *config.Config) { c.KV.Release = "off" }), &out)
	if err == nil {
		t.Fatalf("passed without releases:\n%s", out.String())
	}
	if want := regexp.MustCompile(`prefill-0 holds [1-9]\d* pinned blocks of [1-9]\d* prefills`); !want.MatchString(err.Error()) {
		t.Errorf("error %q does not say %s", err, want)
	}
	if want := regexp.MustCompile(`prefill-1 holds [1-9]\d* pinned blocks of [1-9]\d* prefills`); !want.MatchString(out.String()) {
		t.Errorf("report does not say %s:\n%s", want, &out)
	}
	if strings.Contains(out.String(), "nothing stays behind") {
		t.Errorf("report of a failed run says that it passed:\n%s", out.String())
	}
}

func TestRefusesWrongFlags(t *testing.T) {
	for _, args := range [][]string{
		{"churn", "--clients", "0"},
		{"churn", "--duration", "-1s"},
		{"churn", "--prefill", "0"},
		{"churn", "extra"},
		{"cost", "extra"},
		{"cost", "--window", "-1s"},
	} {
		_, err := call(t, args...)
		var usage config.UsageError
		if !errors.As(err, &usage) {
			t.Errorf("tools %s: error %v is no usage error", strings.Join(args, " "), err)
		}
	}
}
