package members

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"xpyd/engines/journal"
	"xpyd/router"
)

func pools(prefill, decode string) router.Config {
	return router.Config{Prefill: router.MustEntries(strings.Fields(prefill)...), Decode: router.MustEntries(strings.Fields(decode)...)}
}

// rig is a set whose pools are written down in place of being put in force.
type rig struct {
	*Set
	t    *testing.T
	put  []router.Config
	fail error
	log  bytes.Buffer
}

// fits refuses pools that name the engine http://bad:1, with or without a rank.
func fits(cfg router.Config) error {
	for _, e := range cfg.Entries() {
		if strings.HasPrefix(e.URL, "http://bad:1") {
			return errors.New("bad:1 has no place here")
		}
	}
	return nil
}

func newRig(t *testing.T, base router.Config, file string) *rig {
	t.Helper()
	r := &rig{t: t}
	var err error
	if r.Set, err = Open(base, file, fits, zerolog.New(&r.log)); err != nil {
		t.Fatal(err)
	}
	if err := r.Keep(); err != nil {
		t.Fatal(err)
	}
	r.Bind(r.take, journal.New())
	return r
}

func (r *rig) take(cfg router.Config) error {
	if r.fail == nil {
		r.put = append(r.put, cfg)
	}
	return r.fail
}

// expect compares the pools in force, also with those that were last put.
func (r *rig) expect(prefill, decode string) {
	r.t.Helper()
	now := r.Config()
	if p, d := strings.Join(router.Texts(now.Prefill), ", "), strings.Join(router.Texts(now.Decode), ", "); p != prefill || d != decode {
		r.t.Errorf("prefill %s; decode %s\nwant %s; %s", p, d, prefill, decode)
	}
	if n := len(r.put); n > 0 && (!slices.Equal(r.put[n-1].Prefill, now.Prefill) || !slices.Equal(r.put[n-1].Decode, now.Decode)) {
		r.t.Errorf("%v is in force, and %v shown", r.put[n-1], now)
	}
}

// must is for a change that is to succeed.
func (r *rig) must(_ string, err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func TestChangesAndTheConfiguration(t *testing.T) {
	r := newRig(t, pools("http://a:1 http://b:1", "http://c:1 http://d:1"), "")
	r.must(r.Change("a:1", Edit{State: router.Drain, Weight: 2}))
	r.expect("http://a:1 weight=2 state=drain, http://b:1", "http://c:1, http://d:1")
	r.must(r.Change("http://B:1/", Edit{Role: "decode"}))
	r.must(r.Add(Edit{URL: "http://e:1", Role: "prefill", GPUs: 4, Bootstrap: 8998, Connector: "mooncake"}))
	r.must(r.Remove("d:1", ""))
	r.expect("http://a:1 weight=2 state=drain, http://e:1 gpus=4 bootstrap=8998 connector=mooncake", "http://c:1, http://b:1")
	if edits, _ := r.Edits(); len(edits) != 4 {
		t.Errorf("%d edits, want 4: %v", len(edits), edits)
	}

	// What was undone is no edit.
	r.must(r.Change("b:1", Edit{Role: "prefill"}))
	r.must(r.Add(Edit{URL: "http://d:1", Role: "decode"}))
	r.must(r.Change("a:1", Edit{State: router.Ready, Weight: 1}))
	r.must(r.Remove("e:1", ""))
	r.expect("http://a:1, http://b:1", "http://c:1, http://d:1")
	if edits, _ := r.Edits(); len(edits) != 0 {
		t.Errorf("edits are left: %v", edits)
	}
}

// An engine gets and loses the other role at run time. It may be the last one that decodes.
func TestAnEngineWithoutARole(t *testing.T) {
	r := newRig(t, pools("http://a:1", "http://b:1"), "")
	r.must(r.Change("b:1", Edit{Role: "both"}))
	r.must(r.Add(Edit{URL: "http://c:1", Role: "both", Weight: 2}))
	r.expect("http://a:1", "")
	if got := strings.Join(router.Texts(r.Config().Engines), ", "); got != "http://b:1, http://c:1 weight=2" {
		t.Errorf("engines %s", got)
	}
	r.must(r.Remove("c:1", ""))
	if _, err := r.Change("b:1", Edit{Role: "prefill"}); err == nil || !strings.Contains(err.Error(), "is the last decode backend") {
		t.Errorf("got %v", err)
	}
	r.must(r.Change("b:1", Edit{Role: "decode"}))
	r.expect("http://a:1", "http://b:1")
	if edits, _ := r.Edits(); len(edits) != 0 {
		t.Errorf("edits are left: %v", edits)
	}
}

func TestReloadKeepsWhatStillApplies(t *testing.T) {
	r := newRig(t, pools("http://a:1 http://b:1", "http://c:1 http://d:1"), "")
	r.must(r.Change("a:1", Edit{State: router.Drain}))
	r.must(r.Change("b:1", Edit{State: router.Disabled}))
	r.must(r.Remove("d:1", ""))
	r.must(r.Add(Edit{URL: "http://e:1", Role: "decode", Weight: 3}))
	next := pools("http://b:1 http://f:1", "http://c:1 http://d:1 http://e:1")
	if err := r.Rebase(next, r.take); err != nil {
		t.Fatal(err)
	}
	r.expect("http://b:1 state=disabled, http://f:1", "http://c:1, http://e:1 weight=3")
	if log := r.log.String(); strings.Count(log, "is dropped") != 1 || !strings.Contains(log, "http://a:1 is not in the configuration any more") {
		t.Errorf("the log says %s", log)
	}
	next.Decode = router.MustEntries("http://d:1")
	next.Prefill = nil
	r.must(r.Remove("e:1", ""))
	if err := r.Rebase(next, r.take); err == nil || !strings.Contains(err.Error(), "no decode backend") {
		t.Errorf("error %v for pools without decode", err)
	}
	r.expect("http://b:1 state=disabled, http://f:1", "http://c:1")
}

// A new configuration beside which a change cannot stand is refused, and both stay as they were.
func TestReloadThatDoesNotFitTheChanges(t *testing.T) {
	r := newRig(t, pools("http://a:1", "http://c:1"), "")
	r.must(r.Add(Edit{URL: "http://d:1", Role: "decode"}))
	err := r.Rebase(pools("http://bad:1", "http://c:1"), r.take)
	if refused := new(Error); !errors.As(err, &refused) || refused.Kind != Conflict ||
		!strings.Contains(err.Error(), "the run-time changes do not fit the new configuration; undo them first: bad:1") {
		t.Errorf("got %v", err)
	}
	r.expect("http://a:1", "http://c:1, http://d:1")
}

func TestWrongChanges(t *testing.T) {
	r := newRig(t, pools("http://10.0.0.1:8100 http://x:80 https://x:80", "http://10.0.0.2:8200"), "")
	for _, tc := range []struct {
		do   func() (string, error)
		kind Kind
		want string
	}{
		{func() (string, error) { return r.Change("10.0.0.1:8101", Edit{State: router.Drain}) }, Unknown, "there is no backend 10.0.0.1:8101; the nearest is http://10.0.0.1:8100"},
		{func() (string, error) { return r.Remove("http://me:sesame@y:1", "") }, Unknown, "there is no backend http://y:1"},
		{func() (string, error) { return r.Change("x:80", Edit{Weight: 2}) }, Conflict, "x:80 may be http://x:80 or https://x:80; give the URL"},
		{func() (string, error) { return r.Change("10.0.0.1:8100", Edit{}) }, Wrong, "nothing to change"},
		{func() (string, error) { return r.Change("10.0.0.1:8100", Edit{State: "off"}) }, Wrong, `state: "off" must be ready, drain or disabled`},
		{func() (string, error) { return r.Change("10.0.0.1:8100", Edit{Role: "any"}) }, Wrong, `role: "any" must be prefill, decode, both or encode`},
		{func() (string, error) { return r.Change("10.0.0.1:8100", Edit{Weight: -1}) }, Wrong, "weight: -1 must be from 0.01 to 100"},
		{func() (string, error) { return r.Remove("10.0.0.2:8200", "") }, Conflict, "http://10.0.0.2:8200 is the last decode backend; add another one first"},
		{func() (string, error) { return r.Change("10.0.0.2:8200", Edit{Role: "prefill"}) }, Conflict, "is the last decode backend"},
		{func() (string, error) { return r.Add(Edit{URL: "http://10.0.0.2:8200", Role: "prefill"}) }, Conflict, "http://10.0.0.2:8200 is in the decode pool already; change it with xpyd ctl weight or xpyd ctl role, or with PATCH"},
		{func() (string, error) { return r.Change("10.0.0.2:8200", Edit{Role: "encode"}) }, Conflict, "http://10.0.0.2:8200 is a decode backend, and an engine is started for encode alone; remove it and add it again with role encode"},
		{func() (string, error) { return r.Add(Edit{URL: "http://y:1"}) }, Wrong, "role: is missing; give prefill, decode, both or encode"},
		{func() (string, error) { return r.Add(Edit{URL: "http://me:sesame@y:1", Role: "decode"}) }, Wrong, `url: "http://y:1" must hold no user or password`},
		{func() (string, error) { return r.Add(Edit{URL: "http://Y:1@0..7", Role: "decode"}) }, Wrong, `url: "http://Y:1@0..7" is 8 backends; add each rank by itself, as http://y:1@0, or all of them with xpyd ctl add`},
		{func() (string, error) { return r.Add(Edit{URL: "http://y:1@7..0", Role: "decode"}) }, Wrong, "the lower first"},
		{func() (string, error) { return r.Add(Edit{URL: "http://bad:1@2", Role: "decode"}) }, Conflict, "bad:1 has no place here"},
		{func() (string, error) { return r.Add(Edit{URL: "http://y:1", Role: "decode", Bootstrap: 1e6}) }, Wrong, "bootstrap: 1000000 must be a port"},
		{func() (string, error) { return r.Add(Edit{URL: "http://y:1", Role: "decode", Connector: "a b"}) }, Wrong, `connector: "a b" must be the name of one`},
		{func() (string, error) { return r.Add(Edit{URL: "http://y:1", Role: "decode", GPUs: 1e9}) }, Wrong, "gpus: 1e+09 must be from 0.01 to 4096"},
	} {
		_, err := tc.do()
		var refused *Error
		if !errors.As(err, &refused) || refused.Kind != tc.kind || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("got %v, want kind %d: %s", err, tc.kind, tc.want)
		}
	}
	r.Hold(true)
	if _, err := r.Add(Edit{URL: "http://y:1", Role: "decode"}); err == nil || err.(*Error).Kind != Later {
		t.Errorf("got %v while a successor starts", err)
	}
	r.Hold(false)
	if len(r.put) != 0 {
		t.Errorf("%v was put in force", r.put)
	}
}

func TestStateFile(t *testing.T) {
	base := pools("http://a:1 http://b:1", "http://c:1")
	file := filepath.Join(t.TempDir(), "state.json")
	r := newRig(t, base, file)
	r.must(r.Change("a:1", Edit{State: router.Drain}))
	r.must(r.Add(Edit{URL: "http://d:1", Role: "decode"}))
	r.must(r.Remove("b:1", ""))

	again := newRig(t, base, file)
	again.expect("http://a:1 state=drain", "http://c:1, http://d:1")

	// A configuration without a: its edit goes, in the file too.
	other := newRig(t, pools("http://b:1", "http://c:1"), file)
	other.expect("", "http://c:1, http://d:1")
	if !strings.Contains(other.log.String(), "http://a:1") {
		t.Errorf("the log says %s", other.log.String())
	}
	var kept saved
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &kept)
	}
	if err != nil || len(kept.Edits) != 2 {
		t.Errorf("the file has %s: %v", text, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".*")); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}

// A change that cannot be kept, or not be put in force, does not happen.
func TestStateFileThatCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "members.json")
	r := newRig(t, pools("http://a:1", "http://c:1"), file)
	r.must(r.Change("a:1", Edit{Weight: 2}))
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r.fail = errors.New("no")
	if _, err := r.Change("a:1", Edit{State: router.Drain}); err == nil {
		t.Error("a change that could not be put in force succeeded")
	}
	r.fail = nil
	if after, _ := os.ReadFile(file); !bytes.Equal(before, after) {
		t.Errorf("the file has %s, want %s", after, before)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Change("a:1", Edit{State: router.Drain}); err == nil || !strings.Contains(err.Error(), "state_file") {
		t.Errorf("error %v for a directory that is gone", err)
	}
	if err := r.Unkept(); err == nil {
		t.Error("nothing says that a change could not be kept")
	}
	r.expect("http://a:1 weight=2", "http://c:1")
	err = CheckPlace(file)
	want := `state_file: "` + file + `" cannot be written: no such file or directory; give a path in a folder that exists and that this user may write to`
	if refused := new(Error); !errors.As(err, &refused) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := r.Keep(); err == nil || err.Error() != `state_file: "`+file+`" cannot be written: no such file or directory` {
		t.Errorf("a later failure: %v", err)
	}
	if err := os.MkdirAll(file, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := r.Keep(); err == nil || err.Error() != `state_file: "`+file+`" cannot be written: file exists` {
		t.Errorf("a directory in its place: %v", err)
	}
}

// Once the state file can be written again, the first change of any kind finds out, also one that has nothing to keep.
func TestStateFileThatCanBeWrittenAgain(t *testing.T) {
	base := pools("http://a:1", "http://c:1")
	for name, change := range map[string]func(r *rig) error{
		"an enable of a ready backend": func(r *rig) error { _, err := r.Change("a:1", Edit{State: router.Ready}); return err },
		"a reload":                     func(r *rig) error { return r.Rebase(base, r.take) },
	} {
		dir := filepath.Join(t.TempDir(), "state")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		r := newRig(t, base, filepath.Join(dir, "members.json"))
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Change("a:1", Edit{State: router.Drain}); err == nil {
			t.Errorf("%s: a change that cannot be kept succeeded", name)
		}
		if err := change(r); err != nil || r.Unkept() == nil {
			t.Errorf("%s without the folder: %v, unkept %v", name, err, r.Unkept())
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := change(r); err != nil || r.Unkept() != nil {
			t.Errorf("%s: %v, unkept %v", name, err, r.Unkept())
		}
	}
}

// Open leaves the file and its folder as they are.
func TestOpenChangesNothing(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"none.json", "old.json"} {
		file := filepath.Join(dir, name)
		const text = `{"version":1,"edits":[{"url":"http://gone:1","state":"drain"}]}`
		if name == "old.json" {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Open(pools("", "http://c:1"), file, fits, zerolog.Nop()); err != nil {
			t.Error(err)
		}
		if after, _ := os.ReadFile(file); name == "old.json" && string(after) != text {
			t.Errorf("the file has %s", after)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v is there, %v", left, err)
	}
}

func TestStateFilesThatAreRefused(t *testing.T) {
	if _, err := Open(pools("", "http://c:1"), t.TempDir(), fits, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), "cannot be read: is a directory; give a file") {
		t.Errorf("a directory: %v", err)
	}
	for text, want := range map[string]string{
		"{":             "holds no state of xpyd",
		`{"version":9}`: "has version 9, want 1",
		`{"version":1,"edits":[{"url":"http://a:1","state":"off"}]}`:                     `http://a:1: state: "off" must be`,
		`{"version":1,"edits":[{"url":"http://c:1","role":"prefill"}]}`:                  "leaves no decode backend",
		`{"version":1,"edits":[{"url":"http://c:1","removed":true}]}`:                    "leaves no decode backend",
		`{"version":1,"edits":[{"url":"http://a:1","weight":"heavy"}]}`:                  "holds no state of xpyd",
		`{"version":1,"edits":[{"url":"http://a:1","weight":-1}]}`:                       "weight: -1 must be",
		`{"version":1,"edits":[{"url":"http://d:1@0..7","added":true,"role":"decode"}]}`: "must hold no user or password",
		`{"version":1,"edits":[{"url":"http://bad:1@0","added":true,"role":"decode"}]}`:  "do not fit the configuration: bad:1 has no place here; correct one of them",
	} {
		file := filepath.Join(t.TempDir(), "state.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(pools("http://a:1", "http://c:1"), file, fits, zerolog.Nop())
		var refused *Error
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// A rank is named by its URL, or by host, port and rank.
func TestChangesOfARank(t *testing.T) {
	r := newRig(t, pools("http://a:1@0 http://a:1@1", "http://c:1"), "")
	r.must(r.Change("a:1@1", Edit{State: router.Drain}))
	r.must(r.Add(Edit{URL: "http://D:1@2", Role: "decode"}))
	r.must(r.Remove("http://a:1@0", ""))
	r.expect("http://a:1@1 state=drain", "http://c:1, http://d:1@2")
	if _, err := r.Change("a:1", Edit{State: router.Ready}); err == nil {
		t.Error("an engine without its rank names a backend")
	}
}

// A state file that is a pipe or has no end is refused at once.
func TestStateFileThatIsNone(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	huge := filepath.Join(t.TempDir(), "huge")
	if err := os.WriteFile(huge, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, 3<<30); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{pipe: "is no regular file", "/dev/zero": "is no regular file", huge: "is larger than 4MiB"} {
		if _, err := load(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
