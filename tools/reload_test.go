package main

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"xpyd/cmd/config"
	"xpyd/tools/soak"
)

// shortReload is a run that a test can wait for, with this test's binary as the proxy.
func shortReload(t *testing.T, settings map[string]any) soak.ReloadOptions {
	t.Helper()
	all := map[string]any{"timeouts": map[string]any{"upstream_idle": "700ms"}, "health": map[string]any{"interval": "500ms"}}
	for key, value := range settings {
		all[key] = value
	}
	return soak.ReloadOptions{
		Backends: 40, Duration: 4 * time.Second, Clients: 12, Part: 10, Rest: 1500 * time.Millisecond, Seed: 1,
		Serve: []string{"env", actAsProgram + "=1", testBinary(t), "serve"}, Settings: all,
	}
}

// The run finds a proxy that gives no handle back.
func TestReloadRunFailsOnHandlesThatNobodyGivesBack(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	o := shortReload(t, map[string]any{"kv": map[string]any{"release": "off", "lease": "20s"}})
	o.Clients = 48 // of a dozen, none might leave between the legs on a busy machine
	err := soak.Reload(t.Context(), o, &out)
	if want := regexp.MustCompile(`handles that nobody gave back: [1-9]\d*, the first issued by http://127\.`); err == nil || !want.MatchString(out.String()) {
		t.Errorf("error %v, report lacks %s:\n%s", err, want, &out)
	}
	if strings.Contains(out.String(), "reload: ok") {
		t.Errorf("report of a failed run says that it passed:\n%s", &out)
	}
}

// What stands after "--" goes to the proxy.
func TestFlagsOfTheProxyInABench(t *testing.T) {
	command, err := serveCommand(testBinary(t), []string{"--decode-policy", "random"})
	if err != nil || !slices.Equal(command, []string{testBinary(t), "serve", "--decode-policy", "random"}) {
		t.Errorf("error %v, command %q", err, command)
	}
	for _, args := range [][]string{
		{"churn", "--", "--prefill-policy", "nearest"},
		{"soak", "--", "--no-such-flag"},
		{"soak", "extra"},
		{"soak", "reload", "--", "extra"},
		{"soak", "reload", "extra"},
		{"churn", "extra", "--", "--prefill-policy", "random"},
		{"soak", "reload", "--backends", "3"},
	} {
		_, err := call(t, args...)
		var usage config.UsageError
		if !errors.As(err, &usage) {
			t.Errorf("tools %s: error %v is no usage error", strings.Join(args, " "), err)
		}
	}
}

func TestBackendsThatComeAndGoLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := soak.Reload(t.Context(), shortReload(t, nil), &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if want := regexp.MustCompile(`[1-9]\d* reloads, [1-9]\d* backends removed, .*; [1-9]\d* completions, [1-9]\d* more of clients that left`); !want.MatchString(out.String()) {
		t.Errorf("report lacks %s:\n%s", want, &out)
	}
}
