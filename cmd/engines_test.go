package cmd

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// shellWords splits a command as a shell does.
func shellWords(t *testing.T, command string) []string {
	t.Helper()
	out, err := exec.Command("bash", "-c", `printf '%s\n' `+command).CombinedOutput()
	if err != nil {
		t.Fatalf("split %q: %v: %s", command, err, out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// The commands of the README differ from those that make e2e runs only in hosts and in the model's
// name, and they lack what a CPU needs.
func TestDocsEngineCommands(t *testing.T) {
	readme := strings.ReplaceAll(readText(t, "README.md"), "\\\n", " ")
	for _, tc := range []struct{ role, port, host string }{
		{"prefill", "8100", "10.0.0.1"},
		{"decode", "8200", "10.0.0.2"},
	} {
		t.Run(tc.role, func(t *testing.T) {
			command := regexp.MustCompile(`# on ` + tc.host + `, ` + tc.role + `\n((?:[^\x60\n]+\n)+)`).FindStringSubmatch(readme)
			if command == nil {
				t.Fatalf("README.md has no command for %s on %s", tc.role, tc.host)
			}
			out, err := exec.Command("../scripts/real-vllm/engine.sh", "show", tc.role, tc.port).CombinedOutput()
			if err != nil {
				t.Fatalf("engine.sh show: %v: %s", err, out)
			}
			real := shellWords(t, string(out))
			for _, word := range shellWords(t, command[1]) {
				switch word {
				case "vllm", "Qwen/Qwen3-8B": // engine.sh names both by their paths
					continue
				}
				word = strings.ReplaceAll(word, tc.host, "127.0.0.1")
				if !slices.Contains(real, word) {
					t.Errorf("%q of the README is not in the command that make e2e runs:\n%s", word, out)
				}
			}
		})
	}
}
