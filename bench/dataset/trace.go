package dataset

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// blockTokens is the default number of tokens that a hash id of a trace stands for, as in Mooncake's
// traces. Alibaba's have 16.
const blockTokens = 512

// block is how many tokens a hash id stands for.
func (m *maker) block() int { return cmp.Or(m.o.BlockLen, blockTokens) }

// request is one line of a trace.
type request struct {
	At     float64  `json:"timestamp"` // in Ticks
	In     int      `json:"input_length"`
	Out    int      `json:"output_length"`
	Hashes []uint64 `json:"hash_ids"` // optional
}

// full are the ids of the blocks that the prompt fills, of that many tokens each.
func (r *request) full(block int) []uint64 { return r.Hashes[:min(len(r.Hashes), r.In/block)] }

// trace makes prompts of the lengths of a recorded load. Requests whose first ids are equal have
// their first blocks in common.
func (m *maker) trace(ctx context.Context) (*Set, error) {
	rows, err := m.readTrace()
	if err != nil {
		return nil, err
	}
	blocks, err := m.blocks(ctx, rows)
	if err != nil {
		return nil, err
	}
	set := &Set{Prompts: make([]Prompt, len(rows)), LengthBy: m.by}
	exact := make([]bool, len(rows))
	err = each(ctx, len(rows), func(ctx context.Context, i int) (err error) {
		row := &rows[i]
		var start []string
		for _, id := range row.full(m.block()) {
			start = append(start, blocks[id])
		}
		p := &set.Prompts[i]
		p.Due = time.Duration(row.At * float64(cmp.Or(m.o.Tick, time.Millisecond)))
		p.Tokens, p.Limit = row.In, limit(m.o.OutputLen, row.Out)
		p.Text, exact[i], err = m.fit(ctx, m.generator(prefixStream-1-uint64(i)), strings.Join(start, " "), row.In)
		return err
	})
	for _, ok := range exact {
		if !ok {
			set.Inexact++
		}
	}
	return set, err
}

func (m *maker) readTrace() ([]request, error) {
	all, err := lines(m.o.File)
	if err != nil {
		return nil, err
	}
	if m.o.Count > 0 && m.o.Count < len(all) {
		all = all[:m.o.Count]
	}
	rows := make([]request, len(all))
	for i, line := range all {
		row := &rows[i]
		if err := json.Unmarshal([]byte(line), row); err != nil || row.In < 1 || row.Out < 1 || row.At < 0 {
			return nil, fmt.Errorf("line %d of %s: want timestamp, input_length and output_length (%v)", i+1, m.o.File, err)
		}
		if i > 0 && row.At < rows[i-1].At {
			return nil, fmt.Errorf("line %d of %s is earlier than the line before it", i+1, m.o.File)
		}
	}
	return rows, nil
}

// blocks makes the text of each id. A block by itself has the exact number of tokens; next to another
// block it may have one more or less.
func (m *maker) blocks(ctx context.Context, rows []request) (map[uint64]string, error) {
	var ids []uint64
	seen := map[uint64]string{}
	for i := range rows {
		for _, id := range rows[i].full(m.block()) {
			if _, ok := seen[id]; !ok {
				seen[id] = ""
				ids = append(ids, id)
			}
		}
	}
	texts := make([]string, len(ids))
	err := each(ctx, len(ids), func(ctx context.Context, i int) (err error) {
		texts[i], _, err = m.fit(ctx, m.generator(ids[i]), "", m.block()+m.special)
		return err
	})
	for i, id := range ids {
		seen[id] = texts[i]
	}
	return seen, err
}
