package routing

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"xpyd/sim"
)

// traceBlock is the tokens that one of a trace's hash_ids stands for.
const traceBlock = 512

// These bound what is taken from a trace. Prompts that are too long for the engines are left out,
// and longer answers are cut.
const (
	tracePrompt = 120_000
	traceOutput = 64
)

// traceRow is a line of Mooncake's published traces.
type traceRow struct {
	Timestamp    *float64 `json:"timestamp"` // ms
	InputLength  *int     `json:"input_length"`
	OutputLength *int     `json:"output_length"`
	HashIDs      []int64  `json:"hash_ids"` // of blocks of 512 tokens
}

// trace is its requests, in the order of their times.
type trace struct{ rows []traceRow }

func openTrace(path string) (*trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the trace: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	t, err := readTrace(f)
	if err != nil {
		return nil, fmt.Errorf("read the trace %s: %w", path, err)
	}
	return t, nil
}

// readTrace refuses what is no trace, and names the line and the field.
func readTrace(in io.Reader) (*trace, error) {
	t := &trace{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var r traceRow
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if err := r.validate(); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if last := len(t.rows) - 1; last >= 0 && *r.Timestamp < *t.rows[last].Timestamp {
			return nil, fmt.Errorf("line %d: timestamp %g is before that of the request before, %g", n, *r.Timestamp, *t.rows[last].Timestamp)
		}
		if *r.InputLength <= tracePrompt {
			t.rows = append(t.rows, r)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("after %d requests: %w", len(t.rows), err)
	}
	if len(t.rows) < 2 {
		return nil, fmt.Errorf("%d requests of at most %d tokens: want at least 2", len(t.rows), tracePrompt)
	}
	return t, nil
}

func (r *traceRow) validate() error {
	switch {
	case r.Timestamp == nil || *r.Timestamp < 0:
		return errors.New("timestamp: want ms, 0 or more")
	case r.InputLength == nil || *r.InputLength < 1:
		return errors.New("input_length: want tokens, 1 or more")
	case r.OutputLength == nil || *r.OutputLength < 0:
		return errors.New("output_length: want tokens, 0 or more")
	case len(r.HashIDs) != (*r.InputLength+traceBlock-1)/traceBlock:
		return fmt.Errorf("hash_ids: %d blocks of %d tokens are not what input_length %d takes", len(r.HashIDs), traceBlock, *r.InputLength)
	}
	return nil
}

// generate takes as many requests from the beginning as the rate needs, with the trace's own gaps,
// stretched or squeezed to the length of the measurement.
func (t *trace) generate(g *generator) {
	n := min(len(t.rows), max(2, int(g.rate*g.length.Seconds())))
	first, last := *t.rows[0].Timestamp, *t.rows[n-1].Timestamp
	blocks := map[int64]string{}
	for i, r := range t.rows[:n] {
		at := float64(i) / float64(n) // if all came at the same time, evenly
		if last > first {
			at = (*r.Timestamp - first) / (last - first)
		}
		g.add(turn{
			at: time.Duration(at * 0.999 * float64(g.length)), session: fmt.Sprintf("trace-%d", i),
			messages: []sim.Message{message("user", r.prompt(blocks))}, output: min(traceOutput, max(1, *r.OutputLength)),
		})
	}
}

// prompt is text in which equal ids stand for equal text. blocks keeps what was made.
func (r *traceRow) prompt(blocks map[int64]string) string {
	var b bytes.Buffer
	for _, id := range r.HashIDs {
		text, ok := blocks[id]
		if !ok {
			text = words(rand.New(rand.NewPCG(uint64(id), traceBlock)), traceBlock)
			blocks[id] = text
		}
		b.WriteString(text)
	}
	return b.String()[:*r.InputLength*tokenBytes]
}
