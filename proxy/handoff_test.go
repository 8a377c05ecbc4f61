package proxy

import "testing"

func TestLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.1.2.3": true, "::1": true, "localhost": true, "LocalHost": true,
		"10.0.0.1": false, "p1": false, "": false, "::2": false, "12.7.0.1": false,
	} {
		if got := loopback([]byte(host)); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}

func TestRewriteHostKeepsEveryOtherByte(t *testing.T) {
	raw := []byte(`{"remote_engine_id":"a","remote_host":"127.0.0.1","remote_port":1}`)
	host := raw[39:48]
	if string(host) != "127.0.0.1" {
		t.Fatalf("host %q", host)
	}
	if got := string(rewriteHost(raw, host, "p1.example")); got != `{"remote_engine_id":"a","remote_host":"p1.example","remote_port":1}` {
		t.Errorf("%s", got)
	}
}
