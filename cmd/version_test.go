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

// A build says a version whether or not it is one of a release, and the next release is not one that the changelog has.
func TestVersionOf(t *testing.T) {
	for stamp, want := range map[string]string{
		"": release, "v1.2.3": "v1.2.3", "v0.1.0-5-gabc1234-dirty": "v0.1.0-5-gabc1234-dirty",
		"abc1234": release + "+abc1234", "abc1234-dirty": release + "+abc1234-dirty", "v": release + "+v", "vabc": release + "+vabc",
	} {
		if got := versionOf(stamp); got != want {
			t.Errorf("%q is %s, want %s", stamp, got, want)
		}
	}
	next := strings.TrimSuffix(strings.TrimPrefix(release, "v"), "-dev")
	if strings.Contains(readText(t, "CHANGELOG.md"), "## ["+next+"]") {
		t.Errorf("CHANGELOG.md has %s already: raise release in version.go", next)
	}
}
