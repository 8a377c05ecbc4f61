package sim_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"xpyd/sim"
)

// TestSimIsTheRecordedEngine sends the sim everything that was sent to real engines, and compares
// the outlines of the answers. A difference fails unless it is in the list of accepted ones.
// -v shows those. To add a version, run make record.
func TestSimIsTheRecordedEngine(t *testing.T) {
	used, skipped := map[int]bool{}, 0 // what -run leaves out
	versions := recordedVersions(t)
	for _, version := range slices.Sorted(maps.Keys(versions)) {
		o := sim.Options{Version: version, Model: "tiny", BlockSize: 32, NumBlocks: 1024, MaxModelLen: 2048}
		var es engines
		es.prefill, es.decode = pair(t, o)
		o.NoPrefixCaching = true // it was recorded like this
		es.plain = start(t, o)
		for _, r := range recordings(t, versions[version]) {
			skipped++
			t.Run(version+"/"+r.name, func(t *testing.T) {
				skipped--
				want, err := outline(r.answer)
				if err != nil {
					t.Fatalf("recording: %v", err)
				}
				got, err := outline(es.replay(t, r))
				if err != nil {
					t.Errorf("sim: %v", err)
				}
				judge(t, diff(want, got), version, r.name, used)
			})
		}
		skipped++
		t.Run(version+"/openapi", func(t *testing.T) {
			skipped--
			want := recordedRoutes(t, versions[version])
			judge(t, diff(want, es.routes(t, want)), version, "openapi", used)
		})
	}
	for i, d := range accepted {
		if !used[i] && skipped == 0 {
			t.Errorf("accepted but no longer there: %v in %v of %v", d.lines, d.exchanges, d.versions)
		}
	}
}

// judge fails for the lines that no accepted difference names, and notes those that were used.
func judge(t *testing.T, lines []string, version, exchange string, used map[int]bool) {
	t.Helper()
	unaccepted := false
	shown := make([]string, len(lines))
	for i, line := range lines {
		shown[i] = line
		if line[0] == ' ' {
			continue
		}
		at := slices.IndexFunc(accepted, func(d difference) bool { return d.names(version, exchange, line) })
		if at >= 0 {
			used[at] = true
			shown[i] = "~" + line + "   # " + accepted[at].why
			continue
		}
		unaccepted = true
	}
	switch text := strings.Join(around(shown), "\n"); {
	case unaccepted:
		t.Errorf("vLLM %s (-) and the sim (+) differ:\n%s", version, text)
	case text != "":
		t.Logf("accepted:\n%s", text)
	}
}

// around returns the changed lines, with two of the others before and after.
func around(lines []string) []string {
	var shown []string
	end := 0
	for i, line := range lines {
		if line[0] == ' ' {
			continue
		}
		begin := max(end, i-2)
		if begin > end && end > 0 {
			shown = append(shown, "  ...")
		}
		end = min(len(lines), i+3)
		shown = append(shown, lines[begin:end]...)
	}
	return shown
}

// diff lists want and got as one, each line after its mark: "-" in want only, "+" in got only, " "
// in both (a longest common subsequence).
func diff(want, got []string) []string {
	common := make([][]int, len(want)+1) // of want[i:] and got[j:]
	for i := range common {
		common[i] = make([]int, len(got)+1)
	}
	for i := len(want) - 1; i >= 0; i-- {
		for j := len(got) - 1; j >= 0; j-- {
			common[i][j] = max(common[i+1][j], common[i][j+1])
			if want[i] == got[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	var lines []string
	i, j := 0, 0
	for i < len(want) || j < len(got) {
		switch {
		case i < len(want) && j < len(got) && want[i] == got[j]:
			lines = append(lines, " "+want[i])
			i, j = i+1, j+1
		case j == len(got) || i < len(want) && common[i+1][j] >= common[i][j+1]:
			lines = append(lines, "-"+want[i])
			i++
		default:
			lines = append(lines, "+"+got[j])
			j++
		}
	}
	return lines
}

// difference is an accepted difference between real engines and the sim.
type difference struct {
	versions  *regexp.Regexp // nil is any, as in the others
	exchanges *regexp.Regexp
	lines     *regexp.Regexp // with their marks
	why       string
}

func (d difference) names(version, exchange, line string) bool {
	return matches(d.versions, version) && matches(d.exchanges, exchange) && matches(d.lines, line)
}

func matches(e *regexp.Regexp, text string) bool { return e == nil || e.MatchString(text) }

// whole is an expression of whole texts.
func whole(expression string) *regexp.Regexp { return regexp.MustCompile("^(?:" + expression + ")$") }

func TestDiff(t *testing.T) {
	for _, tc := range []struct{ want, got, diff string }{
		{"a b c", "a b c", " a  b  c"},
		{"a b c", "a c", " a -b  c"},
		{"a c", "a b c", " a +b  c"},
		{"a b", "b a", "-a  b +a"},
		{"a", "", "-a"},
	} {
		if d := strings.Join(diff(strings.Fields(tc.want), strings.Fields(tc.got)), " "); d != tc.diff {
			t.Errorf("%q, %q: %q, want %q", tc.want, tc.got, d, tc.diff)
		}
	}
}

func TestOutline(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\ndate: now\r\n"
	for name, tc := range map[string]struct{ answer, outline, err string }{
		"members in their order": {head + "\r\n" + `{"b":1,"a":{"c":null},"d":[{"e":1.5},{"e":2,"f":true}]}`,
			"object|b integer|a object|a.c <nil>|d list|d[] object|d[].e fraction|d[].e integer|d[].f true", ""},
		"what is constant": {head + "\r\n" + `{"id":"cmpl-12","object":"list","x":"y"}`,
			`object|id "cmpl-*"|object "list"|x string`, ""},
		"errors as they are": {"HTTP/1.1 400 Bad Request\r\n\r\n" + `{"code":400,"message":"no"}`,
			`HTTP/1.1 400 Bad Request|object|code 400|message "no"`, ""},
		"two tokens are one kind": {head + "transfer-encoding: chunked\r\n\r\n" + chunk(`data: {"a":1}`) + chunk(`data: {"a":2}`) + chunk("data: [DONE]") + "0\r\n\r\n",
			"transfer-encoding: chunked|event|object|a integer|event [DONE]", ""},
		"two events in a chunk": {head + "transfer-encoding: chunked\r\n\r\n" + chunk("data: 1\n\ndata: 2") + "0\r\n\r\n",
			"transfer-encoding: chunked", "chunk is no event"},
		"an unfinished body": {head + "transfer-encoding: chunked\r\n\r\n" + chunk("data: 1"),
			"transfer-encoding: chunked", "no chunk"},
		"metrics": {head + "content-type: text/plain\r\n\r\n# TYPE b gauge\nb{x=\"y\"} 3.0\na_info{v=\"1\"} 1.0\n",
			`content-type: text/plain|# TYPE b gauge|a_info{v=*}|b{x="y"}`, ""},
	} {
		lines, err := outline(tc.answer)
		text := strings.TrimPrefix(strings.Join(lines, "|"), "HTTP/1.1 200 OK|date: *|")
		if text != tc.outline || !strings.Contains(fmt.Sprint(err), tc.err) || (err == nil) != (tc.err == "") {
			t.Errorf("%s: %q, %v, want %q, %q", name, text, err, tc.outline, tc.err)
		}
	}
}

func chunk(event string) string {
	return fmt.Sprintf("%x\r\n%s\n\n\r\n", len(event)+2, event)
}
