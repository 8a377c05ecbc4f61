package cmd

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// list returns the strings of an array in the line.
func (l logLine) list(key string) (all []string) {
	values, _ := l[key].([]any)
	for _, v := range values {
		all = append(all, fmt.Sprint(v))
	}
	return all
}

// One line for each reload says what has changed. Warnings say which settings do nothing.
func TestReloadSaysWhatChanged(t *testing.T) {
	t.Parallel()
	const ports = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\napi_keys: [sesame]\n"
	file := &poolFile{t, writeFile(t, "xpyd.yaml", ports+"prefill: [http://127.0.0.1:1, http://127.0.0.1:2]\ndecode: [http://127.0.0.1:3]\n", 0o600)}
	p := startSelf(t, "serve", "--config", file.path)
	pid := p.serving(1)
	idle := 0
	for i, step := range []struct {
		text           string
		joined, left   float64
		changes, warns []string
	}{
		{"prefill: [http://127.0.0.1:1, http://127.0.0.1:4]\ndecode: [\"http://127.0.0.1:3 weight=2\", http://127.0.0.1:5]\npd: {mode: auto}\naffinity: {headers: [X-A, X-B]}\n", 2, 1,
			[]string{"prefill: added http://127.0.0.1:4", "prefill: removed http://127.0.0.1:2", "decode: added http://127.0.0.1:5", "decode: weight of http://127.0.0.1:3 1 -> 2",
				"decode_policy: least_request -> prefix", "affinity.headers: none -> X-A,X-B", "pd.mode: always -> auto"}, nil},
		{"prefill: [http://127.0.0.1:4, http://127.0.0.1:1]\ndecode: [\"http://127.0.0.1:3 weight=2\", http://127.0.0.1:5]\npd: {mode: auto}\naffinity: {headers: [X-A, X-B]}\n", 0, 0,
			[]string{"nothing changed"}, nil},
		{"decode: [http://127.0.0.1:5]\npd: {mode: auto}\n", 0, 3,
			[]string{"prefill: removed http://127.0.0.1:4", "prefill: removed http://127.0.0.1:1", "decode: removed http://127.0.0.1:3", "affinity.headers: X-A,X-B -> none"},
			[]string{`pd.mode: "auto" has no effect: there is no prefill pool`}},
		{"decode: [http://127.0.0.1:5]\npd: {mode: auto}\ndecode_policy: prefix\n", 0, 0, []string{"nothing changed"}, nil},
		{"decode: [http://127.0.0.1:5]\npd: {mode: auto}\ndecode_policy: random\n", 0, 0, []string{"decode_policy: prefix -> random"}, nil},
		{"decode: [\"http://127.0.0.1:5 gpus=2\"]\npd: {mode: auto}\ndecode_policy: random\n", 0, 0, []string{"decode: weight of http://127.0.0.1:5 1 -> 2", "decode: GPUs of http://127.0.0.1:5 0 -> 2"}, nil},
		{"decode: [\"http://127.0.0.1:5 gpus=2 connector=mooncake\"]\npd: {mode: auto}\ndecode_policy: random\n", 1, 1, []string{"decode: connector of http://127.0.0.1:5 none -> mooncake"}, nil},
	} {
		file.text(ports + step.text)
		p.signal(pid, syscall.SIGHUP)
		l := p.await(i+1, reloaded)
		if got := l.list("changes"); !slices.Equal(got, step.changes) || l["joined"] != step.joined || l["left"] != step.left {
			t.Errorf("reload %d says %v\nwant %v joined, %v left, %q", i+1, l, step.joined, step.left, step.changes)
		}
		for _, want := range step.warns {
			idle++
			if got := p.await(idle, "questionable setting")["setting"]; !strings.HasPrefix(fmt.Sprint(got), want) {
				t.Errorf("reload %d warns of %v, want %s", i+1, got, want)
			}
		}
	}
	if n := p.count("questionable setting"); n != idle {
		t.Errorf("%d warnings, want %d: each once", n, idle)
	}
	p.signal(pid, syscall.SIGTERM)
	p.gone()
	if n := p.count("questionable setting"); n != idle {
		t.Errorf("%d warnings, want %d", n, idle)
	}
}
