package proxy_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"xpyd/kvparams"
	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

const secretText = "what is on these pictures"

// picture is an item of a chat.
func picture(name string) string {
	return `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + name + `"}}`
}

const sound = `{"type":"input_audio","input_audio":{"data":"c291bmQ=","format":"wav"}}`

// withMedia is a chat with a text and items.
func withMedia(more string, items ...string) string {
	parts := append([]string{`{"type":"text","text":"` + secretText + `"}`}, items...)
	return `{"model":"sim","messages":[{"role":"user","content":[` + strings.Join(parts, ",") + `]}],"max_tokens":6,"temperature":0` + more + `}`
}

// expectMedia fails unless a is the right answer to withMedia with these items.
func (r *rig) expectMedia(a answer, items ...string) {
	r.t.Helper()
	content := secretText
	for _, item := range items {
		if item == sound {
			content += "<input_audio>"
		} else {
			content += "<image_url>"
		}
	}
	want := sim.Text(sim.ChatPrompt(sim.Message{Role: "user", Content: content}), 6)
	if a.err != nil || a.status != 200 || a.text() != want {
		r.t.Fatalf("status %d, error %v, text %q, want %q\n%s\n%s", a.status, a.err, a.text(), want, a.body, r.logs)
	}
}

// encodings sums what engines found and computed.
func encodings(engines []*sim.Engine) (loaded, computed int) {
	for _, e := range engines {
		l := e.Ledger()
		loaded, computed = loaded+l.EncodingsLoaded, computed+l.EncodingsComputed
	}
	return loaded, computed
}

// expectEncodings waits until the engines of the next leg have found and computed as many encodings.
func (r *rig) expectEncodings(engines []*sim.Engine, loaded, computed int) {
	r.t.Helper()
	gotLoaded, gotComputed := encodings(engines)
	if gotLoaded != loaded || gotComputed != computed {
		r.t.Fatalf("%d encodings loaded and %d computed, want %d and %d\n%s", gotLoaded, gotComputed, loaded, computed, r.logs)
	}
}

func TestEncodeComesFirst(t *testing.T) {
	r := newRig(t, rigOptions{encode: 2})
	items := []string{picture("AAAA"), sound, picture("BBBB"), picture("CCCC")}
	for _, stream := range []string{"", `,"stream":true`} {
		id := "epd" + fmt.Sprint(len(stream))
		more := stream + `,"mm_processor_kwargs":{"max_pixels":7},"media_io_kwargs":{"image":{"mode":"` + id + `"}}`
		r.expectMedia(r.post("/v1/chat/completions", withMedia(more, items...), "X-Request-Id", id), items...)
		if p := r.record(r.prefill[0], id); p.EncodingsLoaded != 4 || p.EncodingsComputed != 0 || p.Leg != "prefill" {
			t.Errorf("prefill leg %+v, want all 4 encodings from the encode engines", p)
		}
		if d := r.record(r.decode[0], id); bytes.Contains(d.Body, []byte("ec_transfer_params")) || d.Leg != "decode" {
			t.Errorf("the decode leg has the encodings too: %s", d.Body)
		}
	}
	r.await("all encode legs told", func() bool { return len(legs(r.encode, "encode")) == 8 })
	for _, rec := range legs(r.encode, "encode") {
		if bytes.Contains(rec.Body, []byte(secretText)) || rec.Media != 1 || rec.MaxTokens != 1 || rec.Stream || rec.Path != "/v1/chat/completions" {
			t.Errorf("encode leg %+v with %s", rec, rec.Body)
		}
	}
	for _, e := range r.encode {
		if len(e.Requests()) == 0 {
			t.Errorf("%s got nothing to do", e.Name())
		}
	}
	for series, want := range map[string]float64{
		`xpyd_encode_items_total{result="encoded"}`: 8, `xpyd_encode_items_total{result="left"}`: 0, `xpyd_leg_duration_seconds_count{leg="encode"}`: 8,
		`xpyd_leg_requests_total{backend="` + r.encode[0].URL(): float64(len(r.encode[0].Requests())), `xpyd_in_flight{backend="` + r.encode[0].URL() + `",role="encode"}`: 0,
	} {
		if got := r.metric(series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
	if logs := r.logs.String(); !strings.Contains(logs, `"encode_items":4,"encode_left":0,"encode_ms":`) || strings.Contains(logs, secretText) || strings.Contains(logs, "AAAA") {
		t.Errorf("logs %s", logs)
	}
	r.expectNothingHeld()
}

// Text, and chats without an encode pool, have no encode leg.
func TestTextSkipsEncode(t *testing.T) {
	r := newRig(t, rigOptions{encode: 1})
	for _, c := range forms(prompt, 3) {
		r.expectWhole(c, r.call(c))
	}
	if n := len(r.encode[0].Requests()); n != 0 || strings.Contains(r.logs.String(), "encode_") {
		t.Errorf("text took %d encode legs\n%s", n, r.logs)
	}
	r = newRig(t, rigOptions{})
	r.expectMedia(r.post("/v1/chat/completions", withMedia("", sound)), sound)
	r.expectEncodings(r.prefill, 0, 1)
	r.expectNothingHeld()
}

// An engine that computes the prompt alone gets the encodings.
func TestEncodeForDecodeAlone(t *testing.T) {
	r := newRig(t, rigOptions{encode: 1, prefill: -1})
	r.expectMedia(r.post("/v1/chat/completions", withMedia("", picture("AAAA"), sound)), picture("AAAA"), sound)
	r.expectEncodings(r.decode, 2, 0)
	r.expectNothingHeld()
}

func TestEncodeOfMessages(t *testing.T) {
	r := newRig(t, rigOptions{encode: 1})
	body := `{"model":"sim","max_tokens":4,"messages":[{"role":"user","content":[{"type":"text","text":"hi"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"QUJD"}}]}]}`
	if a := r.post("/v1/messages", body); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	r.expectEncodings(r.prefill, 1, 0)
	if recs := legs(r.encode, "encode"); len(recs) != 1 || recs[0].Path != "/v1/messages" {
		t.Errorf("encode legs %+v", recs)
	}
}

// Many items share few legs.
func TestEncodeLegsAreBounded(t *testing.T) {
	r := newRig(t, rigOptions{encode: 1})
	var items []string
	for i := range 30 {
		items = append(items, picture(fmt.Sprintf("%04d", i)))
	}
	r.expectMedia(r.post("/v1/chat/completions", withMedia("", items...)), items...)
	r.expectEncodings(r.prefill, 30, 0)
	r.await("all encode legs told", func() bool { return len(legs(r.encode, "encode")) == 8 })
}

// Whatever happens to encoders, the client gets its answer, and nothing stays held.
func TestEncodeFaults(t *testing.T) {
	together(t)
	for _, fault := range []sim.Fault{
		{Kind: sim.FaultRefuse}, {Kind: sim.FaultRST}, {Kind: sim.FaultFIN}, {Kind: sim.FaultStatus, Value: 503}, {Kind: sim.FaultStatus, Value: 500},
		{Kind: sim.FaultStatus, Value: 400}, {Kind: sim.FaultHang}, {Kind: sim.FaultBadJSON}, {Kind: sim.FaultTruncate, At: 60}, {Kind: sim.FaultDie},
	} {
		for _, encoders := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s%d of %d", fault.Kind, fault.Value, encoders), func(t *testing.T) {
				r := newRig(t, rigOptions{encode: encoders, config: func(c *proxy.Config) {
					if fault.Kind == sim.FaultHang {
						c.Timeouts.Encode = 200 * time.Millisecond
					}
				}})
				if err := r.encode[0].SetFault(fault); err != nil {
					t.Fatal(err)
				}
				moves := encoders == 2 && fault.Kind != sim.FaultHang && fault.Value != 400 // another engine would say the same, or take as long
				met := func() bool { return fault.Kind == sim.FaultRefuse || len(r.encode[0].Requests()) > 0 }
				sent := 0
				r.until(met, func(i int) {
					item := picture(fmt.Sprintf("%04d", i))
					r.expectMedia(r.post("/v1/chat/completions", withMedia("", item)), item)
					sent++
				})
				loaded, computed := encodings(r.prefill)
				if loaded+computed != sent || moves && computed > 0 || encoders == 1 && loaded > 0 {
					t.Errorf("%d encodings loaded and %d computed of %d\n%s", loaded, computed, sent, r.logs)
				}
				if got := r.metric(`xpyd_encode_items_total{result="left"}`); got != float64(computed) {
					t.Errorf("%v items left, want %d", got, computed)
				}
				r.expectNothingHeld()
			})
		}
	}
}

// A prefill that is tried again goes without what encoders said, as the first may have failed of it.
func TestEncodingsGoToOnePrefillAlone(t *testing.T) {
	r := newRig(t, rigOptions{encode: 1, prefill: 2, router: inTurn})
	if err := r.prefill[0].SetFault(sim.Fault{Kind: sim.FaultStatus, Value: 500}); err != nil {
		t.Fatal(err)
	}
	r.until(func() bool { return len(legs(r.prefill[:1], "prefill")) > 0 }, func(i int) {
		item := picture(fmt.Sprintf("%04d", i))
		r.expectMedia(r.post("/v1/chat/completions", withMedia("", item)), item)
	})
	first := legs(r.prefill[:1], "prefill")[0]
	item := first.Body[bytes.Index(first.Body, []byte("base64,")):][:11]
	for _, rec := range legs(r.prefill[1:], "prefill") {
		if bytes.Contains(rec.Body, item) && bytes.Contains(rec.Body, []byte("ec_transfer_params")) {
			t.Errorf("the second prefill engine got the encodings of which the first may have failed: %s", rec.Body)
		}
	}
}

// What no engine has had is not lost: without a prefill engine, decode gets the encodings.
func TestEncodingsOutliveTheirPrefillPool(t *testing.T) {
	r := newRig(t, rigOptions{encode: 1})
	r.prefill[0].Kill()
	r.await("down", func() bool { return r.metric(`xpyd_backend_up{backend="`+r.prefill[0].URL()) == 0 })
	item := picture("AAAA")
	a := r.post("/v1/chat/completions", withMedia("", item))
	r.expectMedia(a, item)
	if path, reason := a.header.Get("X-Xpyd-Path"), a.header.Get("X-Xpyd-Reason"); path != "decode_only" || reason != "prefill_unavailable" {
		t.Errorf("path %s, %s", path, reason)
	}
	r.expectEncodings(r.decode, 1, 0)
}

// Legs that fail say one thing about each engine, and are tried again at the price of one request's retry.
func TestFailedEncodeLegsCountOnce(t *testing.T) {
	r := newRig(t, rigOptions{encode: 2})
	for _, e := range r.encode {
		if err := e.SetFault(sim.Fault{Kind: sim.FaultStatus, Value: 500}); err != nil {
			t.Fatal(err)
		}
	}
	var items []string
	for i := range 8 {
		items = append(items, picture(fmt.Sprintf("%04d", i)))
	}
	r.expectMedia(r.post("/v1/chat/completions", withMedia("", items...)), items...)
	if n := r.legsOf("encode"); n != 16 {
		t.Errorf("%v encode legs, want each of 8 on both engines", n)
	}
	if n := r.metric(`xpyd_backend_ejections_total{`); n != 0 {
		t.Errorf("one request has ejected %v engines", n)
	}
}

// The second round of a request begins without what encoders said, as the first may have failed of it.
func TestEncodingsGoToTheFirstRoundAlone(t *testing.T) {
	r := newRig(t, rigOptions{encode: 1, prefill: 2, decode: 2, router: inTurn})
	if err := r.decode[0].SetFault(sim.Fault{Kind: sim.FaultStatus, Value: 500}); err != nil {
		t.Fatal(err)
	}
	met := func() bool { return len(r.decode[0].Requests()) > 0 }
	r.until(met, func(i int) {
		item := picture(fmt.Sprintf("%04d", i))
		r.expectMedia(r.post("/v1/chat/completions", withMedia("", item)), item)
	})
	byID := map[string][]string{}
	for _, rec := range legs(r.prefill, "prefill") {
		item := string(rec.Body[bytes.Index(rec.Body, []byte("base64,")):][7:11])
		byID[item] = append(byID[item], fmt.Sprint(bytes.Contains(rec.Body, []byte("ec_transfer_params"))))
	}
	twice := false
	for item, had := range byID {
		slices.Sort(had)
		switch fmt.Sprint(had) {
		case "[true]":
		case "[false true]":
			twice = true
		default:
			t.Errorf("prefills of %s had encodings: %v", item, had)
		}
	}
	if !twice {
		t.Error("no request had a second round: the test proves nothing")
	}
	r.expectNothingHeld()
}

// Two requests at a time must not get each other's encodings.
func TestEncodingsStayWithTheirRequest(t *testing.T) {
	r := newRig(t, rigOptions{encode: 2})
	done := make(chan answer, 20)
	for i := range cap(done) {
		go func() { done <- r.post("/v1/chat/completions", withMedia("", picture(fmt.Sprintf("%04d", i)), sound)) }()
	}
	for range cap(done) {
		r.expectMedia(r.soon(done), picture(""), sound)
	}
	for _, rec := range legs(r.prefill, "prefill") {
		if n := bytes.Count(rec.Body, []byte("item_indices")); n != 2 {
			t.Errorf("a prefill has %d encodings, want its own 2: %s", n, rec.Body)
		}
	}
	r.expectNothingHeld()
}

// Encodings come from hosts that the operator allows.
func TestEncodingsOfForeignHosts(t *testing.T) {
	r := newRig(t, rigOptions{encode: 1, config: func(c *proxy.Config) { c.KV.AllowHosts = []string{"10.1.2.3"}; c.DecodeOnly.Enabled = true }})
	r.expectMedia(r.post("/v1/chat/completions", withMedia("", sound)), sound)
	for _, rec := range slices.Concat(legs(r.prefill, "prefill"), legs(r.decode, "plain")) {
		if bytes.Contains(rec.Body, []byte("ec_transfer_params")) {
			t.Errorf("an engine was sent to a foreign host: %s", rec.Body)
		}
	}
}

// What is no encoder must not harm a request either, nor may clients name encodings.
func TestEncodeAnswersAreChecked(t *testing.T) {
	told := make(chan string, 1)
	odd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		if q.Method == http.MethodPost {
			_, _ = io.WriteString(w, <-told)
			return
		}
		_, _ = io.WriteString(w, `{"data":[{"id":"sim"}]}`)
	}))
	defer odd.Close()
	r := newRig(t, rigOptions{encoders: []string{odd.URL}})
	for i, answer := range []string{
		`{"ec_transfer_params":"x"}`, `{"ec_transfer_params":{"h":{}},"ec_transfer_params":{"h":{}}}`, `{"ec_transfer_params":{"h":1}}`, `{"ec_transfer_params":{}} {}`, ``,
		`{"ec_transfer_params":{"h":{"a":"` + strings.Repeat("x", 2<<20) + `"}}}`,
	} {
		told <- answer
		item := picture(fmt.Sprintf("%04d", i))
		r.expectMedia(r.post("/v1/chat/completions", withMedia("", item)), item)
	}
	for _, rec := range r.prefill[0].Requests() {
		if bytes.Contains(rec.Body, []byte("ec_transfer_params")) {
			t.Errorf("a prefill got what no encoder says: %.300s", rec.Body)
		}
	}
	told <- `{}`
	r.expectMedia(r.post("/v1/chat/completions", withMedia("", sound)), sound)
	if a := r.post("/v1/chat/completions", withMedia(`,"ec_transfer_params":{"h":{"peer_host":"evil"}}`, sound)); a.status != 400 || a.code() != "unsupported_parameter" {
		t.Errorf("a client's own ec_transfer_params: %d %s", a.status, a.body)
	}
	r.expectNothingHeld()
}

// A client that leaves ends the encode legs.
func TestClientLeavesDuringEncode(t *testing.T) {
	r := newRig(t, rigOptions{encode: 2})
	for _, e := range r.encode {
		if err := e.SetFault(sim.Fault{Kind: sim.FaultHang}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	go func() {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/chat/completions", strings.NewReader(withMedia("", picture("AAAA"), picture("BBBB"), sound)))
		req.Header.Set("Content-Type", "application/json")
		if resp, err := r.client.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
	r.await("encoding", func() bool { return r.metric(`xpyd_in_flight{backend="http`) == 4 }) // and a slot of decode
	leave()
	r.await("idle", func() bool { return r.metric("xpyd_in_flight") == 0 })
	r.await("told", func() bool { return r.metric(`xpyd_client_gone_total{phase="prefill"}`) == 1 })
	if n := len(r.prefill[0].Requests()) + len(r.decode[0].Requests()); n != 0 {
		t.Errorf("%d requests went on after the client had left", n)
	}
	if n := r.metric(`xpyd_leg_requests_total{backend="http`); n != r.metric(`xpyd_leg_duration_seconds_count{leg="encode"}`) || n != 3 {
		t.Errorf("%v legs ended, want 3\n%s", n, r.metricsText())
	}
}

// A full encode pool is waited for, as the others are.
func TestEncodeQueue(t *testing.T) {
	r := newRig(t, rigOptions{encode: 1, router: func(c *router.Config) { c.EncodeMaxInFlight = 1; c.Queue.Wait = patience }})
	done := make(chan answer, 12)
	for i := range cap(done) {
		go func() { done <- r.post("/v1/chat/completions", withMedia("", picture(fmt.Sprintf("%04d", i)), sound)) }()
	}
	for range cap(done) {
		r.expectMedia(r.soon(done), picture(""), sound)
	}
	if _, computed := encodings(r.prefill); computed != 0 || r.metric(`xpyd_encode_items_total{result="encoded"}`) != 24 {
		t.Errorf("%d encodings were computed by prefill\n%s", computed, r.logs)
	}
	r.expectNothingHeld()
}

// A request over which two encode engines broke off goes to no prefill engine, which would be the third.
func TestEncodeOfADeadlyRequest(t *testing.T) {
	r := newRig(t, rigOptions{encode: 2})
	for _, e := range r.encode {
		if err := e.SetFault(sim.Fault{Kind: sim.FaultRST}); err != nil {
			t.Fatal(err)
		}
	}
	a := r.post("/v1/chat/completions", withMedia("", sound))
	if a.status != 502 || a.code() != "prefill_failed" || !strings.Contains(a.body, "it is not sent to another") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if n := len(r.prefill[0].Requests()) + len(r.decode[0].Requests()); n != 0 {
		t.Errorf("%d more engines got it", n)
	}
	r.expectNothingHeld()
}

// After two engines have broken off over a request, no leg of it begins.
func TestDeadlyItemsGoToFewEngines(t *testing.T) {
	r := newRig(t, rigOptions{encode: 6})
	for _, e := range r.encode {
		if err := e.SetFault(sim.Fault{Kind: sim.FaultRST}); err != nil {
			t.Fatal(err)
		}
	}
	if a := r.post("/v1/chat/completions", withMedia("", picture("0001"), picture("0002"))); a.status != 502 {
		t.Errorf("%d %s", a.status, a.body)
	}
	// One leg may have begun again while one engine only had broken off.
	if n := r.legsOf("encode"); n > 3 {
		t.Errorf("%v encode legs, want at most 3", n)
	}
}

// legsOf counts the legs that have ended, of one kind.
func (r *rig) legsOf(kind string) (n float64) {
	for _, line := range strings.Split(r.metricsText(), "\n") {
		if strings.HasPrefix(line, "xpyd_leg_requests_total{") && strings.Contains(line, `leg="`+kind+`"`) {
			var v float64
			_, _ = fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &v)
			n += v
		}
	}
	return n
}

// An engine that broke off over a request's items is one of the two that a request may break. It says nothing about
// legs that start together: if one of these fails while no engine breaks off, the request goes to others.
func TestEncodeThatBreaksOffIsNoFaultOfLegsThatStartTogether(t *testing.T) {
	together(t)
	for _, role := range []string{"prefill", "decode"} {
		t.Run(role, func(t *testing.T) {
			dialect, _ := kvparams.Lookup("mooncake")
			r := newRig(t, rigOptions{encode: 1, prefill: 2, decode: 2, dialect: dialect, router: inTurn})
			failing := map[string]*sim.Engine{"prefill": r.prefill[0], "decode": r.decode[0]}[role]
			for e, f := range map[*sim.Engine]sim.Fault{r.encode[0]: {Kind: sim.FaultRST}, failing: {Kind: sim.FaultStatus, Value: 500}} {
				if err := e.SetFault(f); err != nil {
					t.Fatal(err)
				}
			}
			r.until(func() bool { return len(failing.Requests()) > 0 }, func(i int) {
				item := picture(fmt.Sprintf("%04d", i))
				r.expectMedia(r.post("/v1/chat/completions", withMedia("", item)), item)
			})
			if n := r.legsOf("encode"); n == 0 {
				t.Error("no engine broke off over an item: the test proves nothing")
			}
			r.expectNothingHeld()
		})
	}
}
