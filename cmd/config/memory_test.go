package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// rootOf makes a root with these files.
func rootOf(t *testing.T, texts map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range texts {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const (
	mountV2 = "31 23 0:28 / / rw - ext4 /dev/vda rw\n30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	mountV1 = "35 31 0:32 ROOT /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n36 31 0:33 ROOT /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
)

func TestMemoryLimit(t *testing.T) {
	const cg, v1 = "sys/fs/cgroup/", "sys/fs/cgroup/memory/"
	stat := func(limit string) string {
		return "cache 0\nhierarchical_memory_limit " + limit + "\nhierarchical_memsw_limit 9\n"
	}
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"nothing mounted", nil, 0},
		{"v2 in a container", map[string]string{"proc/self/mountinfo": mountV2, "proc/self/cgroup": "0::/\n", cg + "memory.max": "536870912\n"}, 512 << 20},
		{"v2 without a limit", map[string]string{"proc/self/mountinfo": mountV2, "proc/self/cgroup": "0::/a\n", cg + "a/memory.max": "max\n"}, 0},
		{"v2, of a parent", map[string]string{"proc/self/mountinfo": mountV2, "proc/self/cgroup": "0::/pod/c\n", cg + "pod/c/memory.max": "2147483648\n", cg + "pod/memory.max": "1073741824\n"}, 1 << 30},
		{"v2, from where the kernel slows it down", map[string]string{"proc/self/mountinfo": mountV2, "proc/self/cgroup": "0::/c\n", cg + "c/memory.max": "2147483648\n", cg + "c/memory.high": "1073741824\n"}, 1 << 30},
		{"v2, a path outside of the mount", map[string]string{"proc/self/mountinfo": mountV2, "proc/self/cgroup": "0::/../../c\n", cg + "memory.max": "536870912\n"}, 512 << 20},
		{"v1 with parents", map[string]string{"proc/self/mountinfo": strings.ReplaceAll(mountV1, "ROOT", "/"), "proc/self/cgroup": "5:cpu:/b\n4:memory:/a\n0::/\n", v1 + "a/memory.stat": stat("536870912")}, 512 << 20},
		{"v1 in a container that sees the paths of its host", map[string]string{"proc/self/mountinfo": strings.ReplaceAll(mountV1, "ROOT", "/docker/1f"), "proc/self/cgroup": "4:hugetlb,memory:/docker/1f\n", v1 + "memory.stat": stat("536870912")}, 512 << 20},
		{"v1 without a limit", map[string]string{"proc/self/mountinfo": strings.ReplaceAll(mountV1, "ROOT", "/"), "proc/self/cgroup": "4:memory:/a\n", v1 + "a/memory.stat": stat("9223372036854771712")}, 0},
	} {
		if got := memoryLimit(rootOf(t, c.files)); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// Budgets that are not given are shares of the memory limit, and one that is given is kept and warned of.
func TestBudgetsFitTheMemory(t *testing.T) {
	for _, c := range []struct {
		limit                      string
		args                       []string
		body, bodies, held, prefix int64 // MiB
		warned                     bool
	}{
		{"max", nil, 32, 1024, 256, 64, false},
		{"8589934592", nil, 32, 1024, 256, 64, false},
		{"536870912", nil, 32, 128, 32, 32, false},
		{"67108864", nil, 16, 16, 4, 4, false},
		{"67108864", []string{"--limits-body=40MiB"}, 40, 40, 4, 4, false},
		{"536870912", []string{"--limits-body-budget=1GiB"}, 32, 1024, 32, 32, true},
		{"536870912", []string{"--limits-answer-budget=400MiB", "--routing-prefix-memory=64MiB"}, 32, 128, 400, 64, true},
		{"max", []string{"--limits-body-budget=1024GiB"}, 32, 1 << 20, 256, 64, false},
	} {
		got := loadWithin(t, c.limit, c.args)
		l := got.Limits
		if l.Body>>20 != c.body || l.BodyBudget>>20 != c.bodies || l.AnswerBudget>>20 != c.held || got.Router.Routing.PrefixMemory>>20 != c.prefix {
			t.Errorf("%s %q: body %d, body_budget %d, answer_budget %d, prefix_memory %d MiB", c.limit, c.args, l.Body>>20, l.BodyBudget>>20, l.AnswerBudget>>20, got.Router.Routing.PrefixMemory>>20)
		}
		if warned := slices.ContainsFunc(Warnings(got), func(w string) bool { return strings.Contains(w, "four fifths of the memory limit") }); warned != c.warned {
			t.Errorf("%s %q: warned %t", c.limit, c.args, warned)
		}
	}
}

// loadWithin loads a configuration in a cgroup with that memory limit.
func loadWithin(t *testing.T, limit string, args []string) Config {
	t.Helper()
	fs := pflag.NewFlagSet("xpyd", pflag.ContinueOnError)
	AddFlags(fs)
	if err := fs.Parse(append(args, decodeFlag...)); err != nil {
		t.Fatal(err)
	}
	read := NewFiles(false)
	read.root = rootOf(t, map[string]string{"proc/self/mountinfo": mountV2, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": limit})
	got, err := Load(t.Context(), read, fs, nil)
	if err != nil {
		t.Fatalf("%s %q: %v", limit, args, err)
	}
	return got
}

// A start and xpyd check name each key that a memory limit lowers, with its default and the value that is used.
func TestLoweredLimitsAreTold(t *testing.T) {
	for _, c := range []struct {
		limit string
		args  []string
		want  []string
	}{
		{"max", nil, nil},
		{"8589934592", nil, nil},
		{"67108864", []string{"--decode-policy=least_tokens"}, []string{"limits.body_budget 16MiB 1GiB", "limits.body 16MiB 32MiB", "limits.answer_budget 4MiB 256MiB"}},
		{"67108864", []string{"--decode-policy=prefix"}, []string{"limits.body_budget 16MiB 1GiB", "limits.body 16MiB 32MiB", "limits.answer_budget 4MiB 256MiB", "routing.prefix_memory 4MiB 64MiB"}},
		{"67108864", []string{"--limits-body=8MiB", "--limits-body-budget=16MiB", "--limits-answer-budget=4MiB", "--decode-policy=prefix"}, []string{"routing.prefix_memory 4MiB 64MiB"}},
	} {
		got := loadWithin(t, c.limit, c.args)
		var told []string
		for _, w := range Warnings(got) {
			if strings.Contains(w, "has no effect") {
				t.Errorf("%s %q: %s, though nobody has set it", c.limit, c.args, w)
			}
			path, rest, _ := strings.Cut(w, ": ")
			if used, rest, ok := strings.Cut(rest, " is used in place of the default "); ok {
				was, _, _ := strings.Cut(rest, ",")
				told = append(told, path+" "+strings.Trim(used, `"`)+" "+was)
			}
		}
		if !slices.Equal(told, c.want) {
			t.Errorf("%s %q: told of %q, want %q", c.limit, c.args, told, c.want)
		}
	}
}
