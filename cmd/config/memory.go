package config

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// memoryLimit returns the least of the memory limits of the cgroups that hold this process, or 0 if none of them has
// one. root is "/", or the files that a test put in its place. Limits above the part of the hierarchy that a container
// sees have to be set on the container too.
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/admin-guide/cgroup-v1/memory.html,
// and cgroups(7), proc_pid_mountinfo(5) for the files below /proc.
func memoryLimit(root string) int64 {
	mounts, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return 0
	}
	least := int64(math.MaxInt64)
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		at, of := strings.Fields(before), strings.Fields(after)
		switch {
		case len(at) < 5 || len(of) < 3:
		case of[0] == "cgroup2":
			// A file of a group does not tell what the groups around it allow.
			top := filepath.Join(root, at[4])
			for dir := filepath.Join(top, ownGroup(root, "", at[3])); ; dir = filepath.Dir(dir) {
				least = min(least, fileLimit(filepath.Join(dir, "memory.max")), fileLimit(filepath.Join(dir, "memory.high")))
				if dir == top {
					break
				}
			}
		case of[0] == "cgroup" && hasWord(of[2], "memory"):
			least = min(least, hierarchyLimit(filepath.Join(root, at[4], ownGroup(root, "memory", at[3]), "memory.stat")))
		}
	}
	if least >= math.MaxInt64/2 { // without a limit, v1 shows the largest number of whole pages
		return 0
	}
	return least
}

// ownGroup returns the path of this process's group below a mount that shows the hierarchy from mounted on. A container
// may see a path that lies outside of its mount. Its own group is then what is mounted.
func ownGroup(root, controller, mounted string) string {
	groups, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || !hasWord(parts[1], controller) {
			continue
		}
		below, err := filepath.Rel(mounted, parts[2])
		if err != nil || below == ".." || strings.HasPrefix(below, "../../") {
			return ""
		}
		return below
	}
	return ""
}

func hasWord(list, word string) bool {
	return strings.Contains(","+list+",", ","+word+",")
}

// fileLimit returns the number that a file holds. "max" and a file that is not there are no limit.
func fileLimit(path string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return math.MaxInt64
	}
	return limitOf(string(text))
}

// hierarchyLimit returns what memory.stat of v1 says of a group and all groups around it.
func hierarchyLimit(path string) int64 {
	text, _ := os.ReadFile(path)
	_, after, _ := strings.Cut(string(text), "hierarchical_memory_limit ")
	line, _, _ := strings.Cut(after, "\n")
	return limitOf(line)
}

func limitOf(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n <= 0 {
		return math.MaxInt64
	}
	return n
}

// These are the parts of a memory limit, one in so many, that budgets have unless they are set. Together with their idle
// buffers they come to two fifths. The rest is for what no budget counts: streams, connections, garbage, and the kernel's
// buffers of sockets.
const (
	bodyPart   = 4
	answerPart = 16
	prefixPart = 16
)

// fitMemory makes the budgets that are not given shares of the memory limit, if they are above these.
func (c *Config) fitMemory(limit int64, given map[string]bool) {
	if c.memory = limit; limit == 0 {
		return
	}
	atMost := func(path string, value *int64, most int64) {
		if given[path] || *value <= most {
			return
		}
		c.lowered = append(c.lowered, lowered{path: path, normal: *value, used: most})
		*value = most
	}
	fit := func(path string, budget *int64, part, least int64) {
		atMost(path, budget, max(limit/part>>20<<20, least))
	}
	least := int64(1 << 20)
	if given["limits.body"] {
		least = c.Limits.Body
	}
	fit("limits.body_budget", &c.Limits.BodyBudget, bodyPart, least)
	atMost("limits.body", &c.Limits.Body, c.Limits.BodyBudget)
	fit("limits.answer_budget", &c.Limits.AnswerBudget, answerPart, 1<<20)
	fit("routing.prefix_memory", &c.Router.Routing.PrefixMemory, prefixPart, minPrefixMemory)
}

// MemoryLimit returns the memory limit of the cgroups that hold the process, or 0 if there is none.
func (c *Config) MemoryLimit() int64 { return c.memory }

// SoftLimit returns what Go should hold at most: the memory limit less what the kernel needs for the sockets. It is 0
// if there is no limit.
func (c *Config) SoftLimit() int64 { return c.memory / 5 * 4 }

// lowered is a key that the memory limit has lowered.
type lowered struct {
	path         string
	normal, used int64 // the default, and what is used
}

func (c *Config) isLowered(path string) bool {
	return slices.ContainsFunc(c.lowered, func(l lowered) bool { return l.path == path })
}

// belowDefault warns of keys that the memory limit has lowered, because a client may be refused for it, and nobody has set
// them.
func belowDefault(c Config) (found []string) {
	for _, l := range c.lowered {
		if l.path == "routing.prefix_memory" && !remembers(c.Router) {
			continue
		}
		found = append(found, invalid(l.path, SizeText(l.used), fmt.Sprintf(
			"is used in place of the default %s, for which the memory limit, %s, is too low; set it, or raise the limit", SizeText(l.normal), SizeText(c.memory))).Error())
	}
	return found
}

// overLimit warns of budgets that the memory limit has no room for.
func overLimit(c Config) []string {
	budgets := c.Limits.BodyBudget + c.Limits.AnswerBudget + c.Router.Routing.PrefixMemory
	if c.memory == 0 || budgets <= c.SoftLimit() {
		return nil
	}
	return []string{invalid("limits.body_budget", SizeText(c.Limits.BodyBudget), fmt.Sprintf(
		"with limits.answer_budget and routing.prefix_memory is more than four fifths of the memory limit, %s, so the kernel may kill xpyd; lower them, leave them out, or raise the limit", SizeText(c.memory))).Error()}
}
