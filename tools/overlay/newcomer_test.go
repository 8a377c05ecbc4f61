package overlay

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"xpyd/internal/racetest"
)

// newcomerTests are those of a connector: what its legs carry, and the rows T38 to T40 of the fault matrix with
// its engines.
var newcomerTests = map[string][]string{
	"kvparams": {"TestLegsOfEachConnector"},
	"proxy": {
		"TestConnectorsMoveKV", "TestConnectorsMoveKVOfEachAPI", "TestConnectorsServeWhatCannotBeSplit",
		"TestConnectorsOutliveAPrefillEngine", "TestConnectorsOutliveADecodeEngine", "TestConnectorsOfAClientThatLeaves",
		"TestConnectorsGiveBackWhatNoDecodeReads", "TestConnectorsFindARestartedPrefillEngine",
	},
}

// A connector is what CONTRIBUTING.md says and nothing else: its diff applies, and the product with it passes the tests
// of each connector, with simulated engines of the new one.
func TestConnectorOfANewcomer(t *testing.T) {
	racetest.SkipPure(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	changed := newcomer(t, root)
	only, err := Only(filepath.Join(root, "proxy"), newcomerTests["proxy"]...)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(changed, only)
	file, err := Write(t.TempDir(), changed)
	if err != nil {
		t.Fatal(err)
	}
	var output string
	for dir, names := range newcomerTests {
		run := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-v", "-count=1", "-timeout=5m", "-overlay="+file,
			"-run=^("+strings.Join(names, "|")+")$/^toy$", "./"+dir)
		run.Dir = root
		run.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
		text, err := run.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", dir, err, text)
		}
		output += string(text)
	}
	for _, name := range slices.Concat(slices.Collect(maps.Values(newcomerTests))...) {
		if !strings.Contains(output, "--- PASS: "+name+"/toy ") {
			t.Errorf("%s has not run with the new connector", name)
		}
	}
}

// newcomer returns the files that the diff of CONTRIBUTING.md changes and makes, as git leaves them in a copy.
func newcomer(t *testing.T, root string) map[string][]byte {
	t.Helper()
	guide, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	diff := regexp.MustCompile("(?s)\n```diff\n(.*?\n)```\n").FindSubmatch(guide)
	if diff == nil {
		t.Fatal("CONTRIBUTING.md has no diff")
	}
	folder := t.TempDir()
	changed := map[string][]byte{}
	for _, m := range regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)$`).FindAllSubmatch(diff[1], -1) {
		name := string(m[1])
		changed[filepath.Join(root, name)] = nil
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue
		}
		if err == nil {
			err = os.WriteFile(path, text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	apply := exec.CommandContext(t.Context(), "git", "apply", "-")
	apply.Dir = folder
	apply.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(folder))
	apply.Stdin = strings.NewReader(string(diff[1]))
	apply.WaitDelay = time.Minute
	if text, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("the diff of CONTRIBUTING.md does not apply: %v\n%s", err, text)
	}
	for path := range changed {
		name, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		if changed[path], err = os.ReadFile(filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	return changed
}
