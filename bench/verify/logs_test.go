package verify

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The logs are those of real engines (vLLM 0.32.0): a warm-up, a completion and a chat through both.
func TestLogs(t *testing.T) {
	prefill, decode := filepath.Join("testdata", "prefill-0.32.0.log"), filepath.Join("testdata", "decode-0.32.0.log")
	changed := func(path, from, to string, most int) string {
		b, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(b), from) {
			t.Fatalf("%v, or no %q in %s", err, from, path)
		}
		name := filepath.Join(t.TempDir(), "engine.log")
		if err := os.WriteFile(name, []byte(strings.Replace(string(b), from, to, most)), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for name, tc := range map[string]struct {
		logs  []string
		state State
		want  string
	}{
		"both":               {[]string{prefill, decode}, OK, "3 prefills with do_remote_decode, each with a decode leg that was given its remote_block_ids, as cmpl-"},
		"in the other order": {[]string{decode, prefill}, OK, "3 prefills"},
		"an older release, which names no request": {[]string{prefill, changed(decode, "'remote_request_id'", "'x'", -1)}, OK, "3 prefills"},
		"no decode":                   {[]string{prefill}, Fail, "3 prefills were to be handed over, and no decode leg of theirs has remote_block_ids"},
		"decode computes the prompts": {[]string{prefill, changed(decode, "'remote_block_ids': [[", "'x': [[", -1)}, Fail, "3 prefills were to be handed over"},
		"no prefill":                  {[]string{decode}, Fail, "3 decode legs have remote_block_ids, and no log has a prefill"},
		"one client left":             {[]string{prefill, changed(decode, "'remote_block_ids': [[", "'x': [[", 1)}, Unknown, "1 of 3 prefills have no decode leg with remote_block_ids, as cmpl-xpyd-warmup-"},
		"blocks of another request":   {[]string{prefill, changed(decode, "'remote_request_id': 'cmpl-guide", "'remote_request_id': 'cmpl-other", 1)}, Fail, "decode of cmpl-guide-7b166018-0-93cc78a5 was given the blocks of cmpl-other-7b166018-0-93cc78a5"},
		"an aborted prefill":          {[]string{changed(prefill, "FINISHED_LENGTH_CAPPED", "FINISHED_ABORTED", 1), changed(decode, "'remote_block_ids': [[", "'x': [[", 1)}, OK, "3 prefills"},
		"not at DEBUG":                {[]string{changed(prefill, "request_finished(", "request_ended(", -1)}, Unknown, "start the engines with VLLM_LOGGING_LEVEL=DEBUG"},
	} {
		row, err := Logs(tc.logs)
		if err != nil || row.State != tc.state || !strings.Contains(row.Detail, tc.want) || row.Check != CheckLogs {
			t.Errorf("%s: %v %+v, want %s %q", name, err, row, tc.state, tc.want)
		}
	}
	if _, err := Logs([]string{"/nope.log"}); err == nil || !strings.Contains(err.Error(), "/nope.log") {
		t.Error(err)
	}
}
