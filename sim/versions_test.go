package sim_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"xpyd/intake/routes"
	"xpyd/internal/docs"
)

// update rewrites the table of docs/results/engines.md (make docs).
var update = flag.Bool("update", false, "rewrite the generated parts of docs/")

// The minor releases 0.x of vLLM that xpyd is made for.
const oldest, newest = 28, 33

// seen is what the recordings of one version hold.
type seen struct {
	version string
	folder  string
	answers map[string]string // raw, by the exchange's name
	before  *seen             // the recorded version before it
}

// The table of versions in docs/results/engines.md says what the recordings say, and nothing else.
func TestDocsVersions(t *testing.T) {
	folders := recordedVersions(t)
	var all []*seen
	for _, version := range slices.SortedFunc(maps.Keys(folders), byMinor) {
		v := &seen{version: version, folder: folders[version], answers: map[string]string{}}
		for _, r := range recordings(t, v.folder) {
			v.answers[r.name] = r.answer
		}
		if len(all) > 0 {
			v.before = all[len(all)-1]
		}
		all = append(all, v)
	}
	table := []string{"| |", "|---|"}
	for _, v := range all {
		table[0] += " " + v.version + " |"
		table[1] += "---|"
	}
	for _, f := range facts(t, all) {
		row := "| " + f.what + " |"
		for _, v := range all {
			row += " " + f.of(v, t) + " |"
		}
		table = append(table, row)
	}
	docs.Check(t, "versions", recorded(all)+"\n\n"+strings.Join(table, "\n")+"\n", *update)
}

// recorded says which of the releases that xpyd is made for have recordings.
func recorded(all []*seen) string {
	var have, lack []string
	for _, v := range all {
		have = append(have, v.version)
	}
	for minor := oldest; minor <= newest; minor++ {
		release := fmt.Sprintf("0.%d", minor)
		if !slices.ContainsFunc(have, func(v string) bool { return strings.HasPrefix(v, release+".") }) {
			lack = append(lack, release)
		}
	}
	said := "Recorded: " + strings.Join(have, ", ") + "."
	if len(lack) > 0 {
		said += " Not recorded: " + strings.Join(lack, ", ") + "."
	}
	return said
}

// fact is a row of the table.
type fact struct {
	what string
	of   func(*seen, *testing.T) string
}

func facts(t *testing.T, all []*seen) []fact {
	metrics := metricsRead(t, all)
	return []fact{
		{"`/version` of the decode engine", (*seen).told},
		{"recorded exchanges", func(v *seen, _ *testing.T) string { return strconv.Itoa(len(v.answers)) }},
		{"packages pinned for `make e2e`, for engines on", (*seen).pinned},
		{"members of the handle in a prefill's whole answer", (*seen).handle},
		{"of these, new since the column before", (*seen).newMembers},
		{"a prefill's stream has a handle", (*seen).handleInStream},
		{"the leg's `X-Request-Id` is in the answer's id", (*seen).legID},
		{"a decode with the handle; `cached_tokens` of the prompt", (*seen).decode},
		{"a KV load that fails, whole", func(v *seen, t *testing.T) string { return v.both(t, "d-%s-foreign-engine", status) }},
		{"the same in a stream: status, events that are not tokens", func(v *seen, t *testing.T) string { return v.both(t, "d-%s-foreign-engine-stream", streamEnd) }},
		{"the request that gives a handle back (`max_tokens` 0)", func(v *seen, t *testing.T) string { return v.both(t, "d-%s-release", status) }},
		{"the usage event after the last token of a decode's stream", (*seen).usageEvent},
		{fmt.Sprintf("metrics that xpyd reads (%d) and the engine lacks", len(metrics)), func(v *seen, _ *testing.T) string { return list(v.lacks(metrics)) }},
		{"routes of xpyd that another column's engine lists and this one does not", (*seen).routesLacking},
		{"Messages, Responses: whole, streamed", (*seen).otherAPIs},
	}
}

// byMinor orders 0.9.0 before 0.10.0.
func byMinor(a, b string) int {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	return slices.CompareFunc(as, bs, func(x, y string) int { return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)) })
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return "`" + strings.Join(names, "`, `") + "`"
}

// answer returns the raw answer of an exchange, and its body without its framing.
func (v *seen) answer(t *testing.T, name string) (raw, body string) {
	t.Helper()
	raw, ok := v.answers[name]
	if !ok {
		t.Fatalf("%s has no exchange %s", v.folder, name)
	}
	head, body, _ := strings.Cut(raw, "\r\n\r\n")
	if strings.Contains(head, "\r\ntransfer-encoding: chunked") {
		chunks, err := unchunked(body)
		if err != nil {
			t.Fatalf("%s of %s: %v", name, v.folder, err)
		}
		body = strings.Join(chunks, "")
	}
	return raw, body
}

// both says how both APIs answered an exchange, once if that is the same.
func (v *seen) both(t *testing.T, name string, of func(raw, body string) string) string {
	t.Helper()
	var said []string
	for _, api := range []string{"completions", "chat"} {
		said = append(said, of(v.answer(t, fmt.Sprintf(name, api))))
	}
	if said[0] == said[1] {
		return said[0]
	}
	return "completions: " + said[0] + "; chat: " + said[1]
}

func status(raw, _ string) string { return strings.Fields(raw)[1] }

// streamEnd names the events of a stream that carry no text.
func streamEnd(raw, body string) string {
	said := []string{status(raw, "")}
	for _, event := range events([]byte(body)) {
		switch {
		case strings.HasPrefix(event, `{"error"`):
			said = append(said, "an error")
		case event == "[DONE]":
			said = append(said, "`[DONE]`")
		case strings.Contains(event, `"delta":{"role"`):
			said = append(said, "the role")
		default:
			said = append(said, "a token")
		}
	}
	return strings.Join(said, ", ")
}

func (v *seen) told(t *testing.T) string {
	_, body := v.answer(t, "d-get-version")
	var said struct{ Version string }
	decodeJSON(t, []byte(body), &said)
	if said.Version != v.version {
		t.Errorf("%s was recorded with vLLM %s", v.folder, said.Version)
	}
	return said.Version
}

// pinned says which scripts have the packages of that version.
func (v *seen) pinned(*testing.T) string {
	var on []string
	for _, place := range [][2]string{{"real-vllm", "a CPU"}, {"gpu", "GPUs"}} {
		if _, err := os.Stat("../scripts/" + place[0] + "/requirements-" + v.version + ".txt"); err == nil {
			on = append(on, place[1])
		}
	}
	return strings.Join(on, ", ")
}

// completion is what of a whole answer, or of an event, is looked at.
type completion struct {
	ID      string
	Choices []json.RawMessage
	Handle  map[string]any `json:"kv_transfer_params"`
	Usage   *struct {
		Prompt  int `json:"prompt_tokens"`
		Details *struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
}

func parsed(t *testing.T, body string) (c completion) {
	t.Helper()
	decodeJSON(t, []byte(body), &c)
	return c
}

// members of the handle, which is the same in both APIs.
func (v *seen) members(t *testing.T) []string {
	t.Helper()
	_, completions := v.answer(t, "p-completions")
	_, chat := v.answer(t, "p-chat")
	names := slices.Sorted(maps.Keys(parsed(t, completions).Handle))
	if inChat := slices.Sorted(maps.Keys(parsed(t, chat).Handle)); !slices.Equal(names, inChat) || len(names) == 0 {
		t.Fatalf("%s: handles with the members %q, and of a chat %q", v.folder, names, inChat)
	}
	return names
}

func (v *seen) handle(t *testing.T) string { return strconv.Itoa(len(v.members(t))) }

func (v *seen) newMembers(t *testing.T) string {
	if v.before == nil {
		return ""
	}
	old := v.before.members(t)
	return list(slices.DeleteFunc(v.members(t), func(name string) bool { return slices.Contains(old, name) }))
}

func (v *seen) handleInStream(t *testing.T) string {
	return v.both(t, "p-%s-stream", func(_, body string) string {
		return yes(slices.ContainsFunc(events([]byte(body)), func(event string) bool {
			return event != "[DONE]" && len(parsed(t, event).Handle) > 0
		}))
	})
}

func (v *seen) legID(t *testing.T) string {
	return v.both(t, "p-%s", func(_, body string) string { return yes(strings.HasSuffix(parsed(t, body).ID, "-rid-77")) })
}

func (v *seen) decode(t *testing.T) string {
	return v.both(t, "d-%s", func(raw, body string) string {
		u := parsed(t, body).Usage
		if u == nil || u.Details == nil {
			return status(raw, "") + ", no usage"
		}
		return fmt.Sprintf("%s; %d of %d", status(raw, ""), u.Details.Cached, u.Prompt)
	})
}

// usageEvent says whether the event before [DONE] has the usage, and no choice.
func (v *seen) usageEvent(t *testing.T) string {
	return v.both(t, "d-%s-stream", func(_, body string) string {
		all := events([]byte(body))
		if len(all) < 2 || all[len(all)-1] != "[DONE]" {
			return "no `[DONE]`"
		}
		c := parsed(t, all[len(all)-2])
		return yes(c.Usage != nil && len(c.Choices) == 0)
	})
}

func (v *seen) otherAPIs(t *testing.T) string {
	var said []string
	for _, name := range []string{"messages", "messages-stream", "responses", "responses-stream"} {
		said = append(said, status(v.answer(t, "plain-"+name)))
	}
	return strings.Join(said, ", ")
}

// metricsRead returns the names that xpyd reads from engines, without vllm: and _total. Names that vLLM
// had before 0.28 are left out.
func metricsRead(t *testing.T, all []*seen) []string {
	t.Helper()
	names := map[string]bool{}
	for file, name := range map[string]*regexp.Regexp{
		"../engines/page.go":          regexp.MustCompile(`(?m)^\tcase .*"(\w+)":$`),
		"../bench/verify/counters.go": regexp.MustCompile(`"vllm:(\w+)"`),
	} {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := name.FindAllStringSubmatch(string(code), -1)
		if len(found) < 10 {
			t.Fatalf("%s: found %d names of metrics", file, len(found))
		}
		for _, m := range found {
			names[strings.TrimSuffix(m[1], "_total")] = true
		}
	}
	read := slices.Sorted(maps.Keys(names))
	read = slices.DeleteFunc(read, func(name string) bool { return strings.HasPrefix(name, "gpu_") })
	for _, name := range read {
		if !slices.ContainsFunc(all, func(v *seen) bool { return len(v.lacks([]string{name})) == 0 }) {
			t.Errorf("xpyd reads %s, which no recorded engine has", name)
		}
	}
	return read
}

// lacks returns those of the metrics that none of the version's engines shows.
func (v *seen) lacks(metrics []string) (missing []string) {
	pages := v.answers["p-get-metrics"] + v.answers["d-get-metrics"] + v.answers["plain-get-metrics"]
	for _, name := range metrics {
		if !regexp.MustCompile(`(?m)^(vllm:)?` + name + `(_total)?[ {]`).MatchString(pages) {
			missing = append(missing, name)
		}
	}
	return missing
}

// routesLacking are paths of xpyd that another recorded version lists. What models that do not generate
// serve is in no recording.
func (v *seen) routesLacking(t *testing.T) string {
	var missing []string
	for _, path := range routes.Paths() {
		listed, somewhere := false, false
		for version, folder := range recordedVersions(t) {
			if slices.ContainsFunc(recordedRoutes(t, folder), func(r string) bool { return strings.HasSuffix(r, " "+path) }) {
				somewhere = true
				listed = listed || version == v.version
			}
		}
		if somewhere && !listed {
			missing = append(missing, path)
		}
	}
	return list(missing)
}
