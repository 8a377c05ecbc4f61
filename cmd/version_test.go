package cmd

import (
	"bytes"
	"encoding/json"
	"runtime"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	run := func(args ...string) string {
		var out bytes.Buffer
		cmd := newVersionCmd()
		cmd.SetOut(&out)
		cmd.SetArgs(append([]string{}, args...)) // with nil, cobra takes the arguments of the process
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if text := run(); !strings.HasPrefix(text, "xpyd ") || !strings.Contains(text, "go     "+runtime.Version()+"\n") {
		t.Errorf("got %q", text)
	}
	var b buildInfo
	if err := json.Unmarshal([]byte(run("--json")), &b); err != nil {
		t.Fatal(err)
	}
	if b != readBuildInfo() || b.Version == "" || b.Go != runtime.Version() {
		t.Errorf("got %+v, want %+v", b, readBuildInfo())
	}
}
