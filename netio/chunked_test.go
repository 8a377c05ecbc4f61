package netio

import "testing"

func TestChunkDecoderTakesAnySplit(t *testing.T) {
	raw := []byte("3\r\nabc\r\nA;q=1\r\n0123456789\r\n0\r\nT: v\r\n\r\nrest")
	for cut := range raw {
		var d BodyDecoder
		d.Chunked = true
		n, out, err := d.Decode(raw[:cut], nil)
		if err != nil {
			t.Fatal(err)
		}
		m, out, err := d.Decode(raw[n:], out)
		if err != nil || string(out) != "abc0123456789" || !d.Ended || string(raw[n+m:]) != "rest" {
			t.Fatalf("cut %d: %q, ended %v, rest %q, %v", cut, out, d.Ended, raw[n+m:], err)
		}
	}
}

func FuzzChunked(f *testing.F) {
	f.Add([]byte("3\r\nabc\r\n0\r\n\r\n"), 4)
	f.Add([]byte("A;q=1\r\n0123456789\r\n0\r\nT: v\r\n\r\nrest"), 7)
	f.Fuzz(func(t *testing.T, raw []byte, cut int) {
		whole := BodyDecoder{Chunked: true}
		n1, out1, err1 := whole.Decode(raw, nil)
		if cut < 0 || cut > len(raw) {
			return
		}
		split := BodyDecoder{Chunked: true}
		n, out2, err2 := split.Decode(raw[:cut], nil)
		n2 := n
		if err2 == nil && !split.Ended {
			n, out2, err2 = split.Decode(raw[n:], out2)
			n2 += n
		}
		if n1 != n2 || string(out1) != string(out2) || (err1 == nil) != (err2 == nil) || whole.Ended != split.Ended {
			t.Fatalf("whole %d %q %v %v, split %d %q %v %v", n1, out1, err1, whole.Ended, n2, out2, err2, split.Ended)
		}
	})
}
