package instrument

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"xpyd/bench/client"
	"xpyd/bench/dataset"
)

// writePrompts makes prompts of the asked length, by the server's tokenizer, for both tools.
func writePrompts(ctx context.Context, o AgreeOptions) error {
	c, err := client.New(client.Options{URL: o.URL, API: o.Load.API, Model: o.Load.Model, Stall: time.Minute, Timeout: time.Minute})
	if err != nil {
		return err
	}
	defer c.Close()
	set, err := dataset.New(ctx, dataset.Options{Kind: dataset.Random, Count: o.Load.Count, InputLen: o.InputLen, OutputLen: o.Load.OutputLen, Seed: uint64(o.Load.Seed)}, c)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	for _, p := range set.Prompts {
		if err := lines.Encode(map[string]string{"prompt": p.Text}); err != nil {
			return fmt.Errorf("write prompts: %w", err)
		}
	}
	if err := os.WriteFile(o.Load.Prompts, text.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write prompts: %w", err)
	}
	return nil
}
