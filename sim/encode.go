package sim

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// An encode engine computes what the images, sounds and videos of a request are to the model, and keeps
// that under a hash of the item and of the options by which it is decoded. The other engines look for an
// encoding where the request's ec_transfer_params say that it is, or in the folder that all of them see,
// and compute what they do not find.
//
// As with vLLM's ECCPUConnector, an encode engine names itself in its answer, unless it has the folder of
// ECExampleConnector (Options.Encodings).

// encodings are what an engine has encoded or loaded, by hash, until it restarts.
type encodings struct {
	mu    sync.Mutex
	known map[string]bool
}

func (e *encodings) has(hash string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.known[hash]
}

// add reports whether the hash was not known.
func (e *encodings) add(hash string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known[hash] {
		return false
	}
	if e.known == nil {
		e.known = map[string]bool{}
	}
	e.known[hash] = true
	return true
}

// readMedia notes the hashes of the items in the messages.
func (r *request) readMedia(f *fields) {
	r.ec = f.object("ec_transfer_params")
	var messages []struct{ Content json.RawMessage }
	if json.Unmarshal(f.members["messages"], &messages) != nil {
		return
	}
	for _, m := range messages {
		var parts []map[string]json.RawMessage
		if json.Unmarshal(m.Content, &parts) != nil {
			continue
		}
		for _, p := range parts {
			if item := mediaOf(p); item != nil {
				sum := sha256.New()
				sum.Write(bytes.Join([][]byte{item, f.members["mm_processor_kwargs"], f.members["media_io_kwargs"]}, []byte{0}))
				r.media = append(r.media, hex.EncodeToString(sum.Sum(nil)[:16]))
			}
		}
	}
}

// mediaOf returns what is encoded of a part, or nil.
func mediaOf(part map[string]json.RawMessage) json.RawMessage {
	for _, name := range []string{"image_url", "audio_url", "video_url", "input_audio"} {
		if part[name] != nil {
			return part[name]
		}
	}
	if strings.Trim(string(part["type"]), `"`) == "image" {
		return part["source"]
	}
	return nil
}

// encode files the items of a request to an encode engine, and makes its ec_transfer_params.
func (g *generation) encode() {
	c := g.c
	host, port := splitPort(c.side.Addr())
	type entry struct {
		Indices  []int          `json:"item_indices"`
		Metadata map[string]int `json:"metadata"`
		Host     string         `json:"peer_host,omitempty"`
		Port     int            `json:"peer_port,omitempty"`
	}
	answer := map[string]*entry{}
	for i, hash := range g.r.media {
		if c.encodings.add(hash) {
			c.ledger.count(func(l *Ledger) { l.Encoded++ })
		}
		if answer[hash] == nil {
			answer[hash] = &entry{Metadata: map[string]int{"grid": 1}}
		}
		e := answer[hash]
		e.Indices = append(e.Indices, i)
		if folder := c.o.Encodings; folder != "" {
			_ = os.WriteFile(filepath.Join(folder, hash), nil, 0o600) // an encoding that is not there is computed
		} else {
			e.Host, e.Port = host, port
		}
	}
	if len(answer) > 0 {
		g.ec, _ = json.Marshal(answer) // it has only strings and numbers
	}
}

// needEncodings has the encodings of a prompt that this engine computes: its own, those that others made,
// and otherwise new ones.
func (g *generation) needEncodings() {
	for i, hash := range g.r.media {
		switch {
		case slices.Contains(g.r.media[:i], hash) || !g.c.encodings.add(hash):
		case g.findEncoding(hash):
			g.rec.EncodingsLoaded++
			g.c.ledger.count(func(l *Ledger) { l.EncodingsLoaded++ })
		default:
			g.rec.EncodingsComputed++
			g.c.ledger.count(func(l *Ledger) { l.EncodingsComputed++ })
		}
	}
}

// findEncoding loads an encoding, and reports whether it was there.
func (g *generation) findEncoding(hash string) bool {
	if folder := g.c.o.Encodings; folder != "" {
		_, err := os.Stat(filepath.Join(folder, hash))
		return err == nil
	}
	var at struct {
		Host string `json:"peer_host"`
		Port int    `json:"peer_port"`
	}
	if json.Unmarshal(g.r.ec[hash], &at) != nil || at.Host == "" {
		return false
	}
	conn, err := g.c.connect(peerKey{host: at.Host, port: at.Port})
	if err != nil {
		return false
	}
	if _, err := conn.ask(sideMessage{Op: "encoding", Request: hash}); err != nil {
		g.c.discard(conn)
		return false
	}
	g.c.park(conn)
	return true
}

// appendEncodings appends ec_transfer_params, which are null unless the engine encodes for others.
func (g *generation) appendEncodings(b []byte) []byte {
	if g.ec == nil {
		return append(b, "null"...)
	}
	return append(b, g.ec...)
}
