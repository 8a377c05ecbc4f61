package report

import (
	"fmt"
	"strconv"
	"strings"

	"xpyd/bench/result"
)

// engineNotes are a line for each engine behind the server, with its work during the run, and a
// warning if engines that should pull KV blocks pulled none.
func engineNotes(engines []result.Engine) (notes []string) {
	prefilled, pulled, decodes := 0.0, 0.0, false
	for i := range engines {
		e := &engines[i]
		notes = append(notes, engineNote(e))
		switch {
		case e.Role == "prefill" && e.Computed != nil:
			prefilled += *e.Computed
		case e.Role == "decode" && e.Pulled != nil:
			decodes = true
			pulled += *e.Pulled
		}
	}
	if decodes && prefilled > 0 && pulled == 0 {
		notes = append(notes, "the prefill engines computed prompts and the decode engines pulled none of them: each prompt was computed twice, or decode found it in its own cache")
	}
	return notes
}

func engineNote(e *result.Engine) string {
	head := "engine " + e.Name
	if e.Role != "" {
		head += ", " + e.Role
	}
	if e.Version != "" {
		head += ", vLLM " + e.Version
	}
	head += ": "
	if e.Problem != "" {
		return head + "unknown, " + e.Problem
	}
	if e.Restarted {
		return head + "unknown, it restarted during the run"
	}
	words := []string{
		"prompt tokens computed " + count(e.Computed), "found in its prefix cache " + count(e.Hit), "pulled " + count(e.Pulled),
		"generated " + count(e.Generated), "preemptions " + count(e.Preemptions),
	}
	words = append(words, cacheWords(e)...)
	return head + strings.Join(append(words, transferWords(e)...), ", ")
}

// cacheWords describe the engine's KV cache, as far as it is known.
func cacheWords(e *result.Engine) (words []string) {
	text := "KV cache"
	if e.KVBlocks != nil {
		text += " of " + count(e.KVBlocks) + " blocks"
		if e.KVBlockTokens != nil {
			text += " of " + count(e.KVBlockTokens) + " tokens"
		}
		if e.KVBytes != nil {
			text += fmt.Sprintf(", about %.3g GiB,", *e.KVBytes/(1<<30))
		}
	}
	switch {
	case e.PeakUsage != nil:
		return []string{fmt.Sprintf("%s at most %.1f %% full when read", text, *e.PeakUsage*100)}
	case e.KVBlocks != nil:
		return []string{strings.TrimSuffix(text, ",")}
	}
	return nil
}

// transferWords describe the engine's KV transfers, if it made any.
func transferWords(e *result.Engine) (words []string) {
	if e.Transfers == nil || *e.Transfers == 0 {
		return nil
	}
	text := count(e.Transfers) + " KV transfers"
	if e.TransferBytes != nil {
		text += " of " + bytesText(*e.TransferBytes) + " in all"
	}
	if ms, ok := e.TransferMS(); ok {
		text += fmt.Sprintf(", %.2f ms each", ms)
	}
	if speed, ok := e.TransferGBps(); ok {
		text += fmt.Sprintf(" at %.3g GB/s", speed)
	}
	words = append(words, text)
	if e.TransferFailed != nil && *e.TransferFailed > 0 {
		words = append(words, count(e.TransferFailed)+" failed")
	}
	return words
}

func count(x *float64) string {
	if x == nil {
		return "unknown"
	}
	return strconv.FormatFloat(*x, 'f', 0, 64)
}

// bytesText is a size in decimal units, as for bandwidth.
func bytesText(n float64) string {
	for _, unit := range []string{"B", "kB", "MB", "GB"} {
		if n < 1000 {
			return fmt.Sprintf("%.3g %s", n, unit)
		}
		n /= 1000
	}
	return fmt.Sprintf("%.3g TB", n)
}
