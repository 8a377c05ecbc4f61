package sim

import (
	"embed"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

//go:embed profiles/*.json
var profileFiles embed.FS

// Profile is how long one kind of engine takes for its work, as measured on GPUs. It replaces
// Options.PrefillTokensPerSecond, TokenLatency and TransferPerBlock.
type Profile struct {
	About            string `json:"about"` // what was measured, on what
	MaxBatchedTokens int    `json:"max_num_batched_tokens"`
	MaxSeqs          int    `json:"max_num_seqs"`

	// RequestMS is the time of a request outside the engine's steps: HTTP and the tokenizer.
	RequestMS float64 `json:"request_ms"`
	// PrefillMS is how long a prompt keeps the engine busy, by its tokens. Its value at 0 is a step's own.
	// Beside running answers, whose step has its own time already, a prompt costs what is above that.
	PrefillMS Curve `json:"prefill_ms"`
	// StepMS is the time of a decode step.
	StepMS struct {
		Base         float64 `json:"base"`
		Stream       float64 `json:"stream"`        // for each stream
		ContextToken float64 `json:"context_token"` // for each token of the prompts of all streams
	} `json:"step_ms"`
	// OwnPrefillMS is the same on an engine without a connector. Empty means that it is no different.
	OwnPrefillMS Curve `json:"own_prefill_ms"`
	// PostMS is how long posting a pull holds up the step that begins it, and so all running answers and
	// the pulls after it, by its tokens.
	PostMS Curve `json:"post_ms"`
	// PullTurnMS is how long an idle engine's pull holds up the first tokens of those after it, by its
	// tokens. PullMS is how long it then takes to its own.
	PullTurnMS Curve `json:"pull_turn_ms"`
	PullMS     Curve `json:"pull_ms"`
}

// Curve is a list of points of tokens and milliseconds, sorted by tokens. Between two points, and beyond
// the last, it is a straight line.
type Curve [][2]float64

func (c Curve) at(tokens int) time.Duration {
	x := float64(tokens)
	i := 1
	for i < len(c)-1 && c[i][0] < x {
		i++
	}
	a, b := c[i-1], c[i]
	return ms(a[1] + (b[1]-a[1])*(x-a[0])/(b[0]-a[0]))
}

func ms(x float64) time.Duration { return time.Duration(x * float64(time.Millisecond)) }

// Profiles lists the names for ProfileNamed.
func Profiles() (names []string) {
	files, _ := profileFiles.ReadDir("profiles") // the folder is in the binary
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".json"))
	}
	return names
}

// ProfileNamed returns the profile of that name.
func ProfileNamed(name string) (*Profile, error) {
	if !slices.Contains(Profiles(), name) {
		return nil, fmt.Errorf("sim profile %q: want one of %s", name, strings.Join(Profiles(), ", "))
	}
	text, err := profileFiles.ReadFile(path.Join("profiles", name+".json"))
	if err != nil {
		return nil, fmt.Errorf("read sim profile %s: %w", name, err)
	}
	p := &Profile{}
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fmt.Errorf("read sim profile %s: %w", name, err)
	}
	return p, nil
}

// prefillMS is the curve of an engine of that role.
func (p *Profile) prefillMS(role Role) Curve {
	if role != RoleBoth || len(p.OwnPrefillMS) == 0 {
		return p.PrefillMS
	}
	return p.OwnPrefillMS
}

// stepTime is how long the next decode step takes.
func (c *core) stepTime() time.Duration {
	p := c.o.Profile
	if p == nil {
		return max(c.o.TokenLatency, 0)
	}
	return ms(p.StepMS.Base + p.StepMS.Stream*float64(c.pace.streams.Load()) + p.StepMS.ContextToken*float64(c.pace.context.Load()))
}

// pullTime waits for as long as a pull of that many blocks takes.
func (c *core) pullTime(blocks int) {
	p := c.o.Profile
	if p == nil {
		c.pause(c.life, time.Duration(blocks)*c.e.transferPerBlock())
		return
	}
	tokens := blocks * c.o.BlockSize
	if c.steps != nil {
		c.steps.transfer(tokens)
		return
	}
	c.pulling.Lock()
	c.pause(c.life, p.PullTurnMS.at(tokens))
	c.pulling.Unlock()
	c.pause(c.life, p.PullMS.at(tokens))
}
