package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// behind returns a relay in front of a server that echoes what it gets and reports when it gets it.
func behind(t *testing.T) (*relay, chan string) {
	t.Helper()
	got := make(chan string, 8)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.Header.Get("X-Request-Id")
		_, _ = w.Write(body)
	}))
	t.Cleanup(server.Close)
	r, err := newRelay(&engine{spec: spec{name: "e"}, addr: strings.TrimPrefix(server.URL, "http://")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	return r, got
}

func TestRelayHoldsTheOneRequest(t *testing.T) {
	r, got := behind(t)
	h := r.hold(stepRequest, "mine")
	held, err := call(context.Background(), r.url, "/", "mine-01234567", []byte("held"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.close()
	if err := awaitAny(context.Background(), h, h); err != nil {
		t.Fatal(err)
	}
	other, err := call(context.Background(), r.url, "/", "other-01234567", []byte("passes"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	if _, body, err := other.whole(); err != nil || string(body) != "passes" {
		t.Fatalf("the other request is answered %q, %v", body, err)
	}
	if id := <-got; id != "other-01234567" {
		t.Errorf("the server has got %s, which is held", id)
	}
	h.let()
	if _, body, err := held.whole(); err != nil || string(body) != "held" {
		t.Errorf("the held request is answered %q, %v", body, err)
	}
}

func TestRelayPassesAReleaseAndCountsHandles(t *testing.T) {
	r, _ := behind(t)
	h := r.hold(stepRequest, "mine")
	defer h.let()
	const handle = `{"kv_transfer_params":{"remote_request_id":"p-1"}}`
	for _, id := range []string{"mine-01234567-release", "a-01234567", "b-01234567"} {
		v, err := call(context.Background(), r.url, "/", id, []byte(handle))
		if err != nil {
			t.Fatal(err)
		}
		if _, body, err := v.whole(); err != nil || string(body) != handle {
			t.Errorf("%s is answered %q, %v", id, body, err)
		}
		v.close()
	}
	if twice, all := usedTwice(r); len(twice) != 1 || all != 1 {
		t.Errorf("used twice: %v of %d; the release does not count, the other two do", twice, all)
	}
	if n := len(r.times(stepRelease, "mine")); n != 1 {
		t.Errorf("%d releases seen", n)
	}
}

func TestRelayThatIsShutRefuses(t *testing.T) {
	r, _ := behind(t)
	r.shut()
	if v, err := call(context.Background(), r.url, "/", "a-01234567", nil); err == nil {
		v.close()
		t.Fatal("a relay that is shut accepts a connection")
	}
	if err := r.reopen(); err != nil {
		t.Fatal(err)
	}
	v, err := call(context.Background(), r.url, "/", "a-01234567", []byte("again"))
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	if _, body, err := v.whole(); err != nil || string(body) != "again" {
		t.Errorf("answered %q, %v", body, err)
	}
}
