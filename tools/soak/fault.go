package soak

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"xpyd/sim"
	"xpyd/sim/faultnet"
	"xpyd/tools/tally"
)

// fault is one thing that was done to an engine or to the connections to it.
type fault struct {
	At     float64 `json:"at_s"` // since the run's start
	Engine string  `json:"engine"`
	Kind   string  `json:"kind"`
	Text   string  `json:"text,omitempty"` // script, op or fault, as its package reads it
	For    float64 `json:"for_s,omitempty"`
	Conn   int     `json:"conn,omitempty"` // number of the relay's connection, and the byte in it
	Byte   int64   `json:"byte,omitempty"`

	from, until time.Time
}

// faultBook has what was done, and when. The seed alone does not repeat a run, because it does not
// determine the schedule of goroutines. It is safe for concurrent use.
type faultBook struct {
	log io.Writer // JSON lines
	// starved reports whether the machine was overloaded at a moment.
	starved func(time.Time) bool

	mu   sync.Mutex
	plan plan           // see start
	list []*fault       // those of the last faultsKept
	n    map[string]int // by kind

	leases map[string]int // entries that only their lease has freed, by their excuse

	gone, goneBefore map[string]bool // ids of clients that left; two generations bound the memory
}

// faultsKept is how long faults are remembered. What one has stranded is freed by its lease, and
// judged within seconds.
const faultsKept = time.Minute + requestDeadline

func newFaultBook(log io.Writer, starved func(time.Time) bool) *faultBook {
	return &faultBook{log: log, starved: starved, n: map[string]int{}, leases: map[string]int{}, gone: map[string]bool{}}
}

// start sets the plan once, before the first fault.
func (b *faultBook) start(p plan) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.plan = p
}

func (b *faultBook) stages() plan {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.plan
}

// open files a fault that lasts until close. d is how long it is meant to last.
func (b *faultBook) open(engine, kind, text string, d time.Duration) *fault {
	now := time.Now()
	f := &fault{Engine: engine, Kind: kind, Text: text, For: d.Seconds(), from: now, until: now.Add(d + faultsKept)}
	b.file(f)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n[kind]++
	return f
}

func (b *faultBook) close(f *fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f.until = time.Now()
}

// injected files what a relay did to one connection. If it swallows bytes, it lasts until the proxy
// gives the connection up.
func (b *faultBook) injected(engine string, i faultnet.Injection) {
	kind, _, _ := strings.Cut(i.Op, "@")
	kind, _, _ = strings.Cut(kind, "=")
	if i.Conn == 0 {
		return // freeze, reset and the like are filed by their caller
	}
	way := "up "
	if i.Down {
		way = "down "
	}
	f := &fault{Engine: engine, Kind: "connection " + kind, Text: way + i.Op, Conn: i.Conn, Byte: i.At, from: i.When, until: i.When}
	if kind == faultnet.Stall || kind == faultnet.Blackhole || kind == faultnet.NoRead {
		f.until = i.When.Add(requestDeadline)
	}
	b.file(f)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n[f.Kind]++
}

func (b *faultBook) file(f *fault) {
	f.At = f.from.Sub(b.stages().begin).Seconds()
	b.write(f)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.list) > 0 && f.from.Sub(b.list[0].from) > 2*faultsKept {
		b.list = slices.DeleteFunc(b.list, func(o *fault) bool { return f.from.Sub(o.until) > faultsKept })
	}
	b.list = append(b.list, f)
}

// write adds a line to the file for people. The accounts are in memory.
func (b *faultBook) write(v any) {
	line, err := json.Marshal(v)
	if err != nil {
		panic("BUG: a fault that is no JSON: " + err.Error())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_, _ = b.log.Write(append(line, '\n'))
}

// find returns the first fault on an engine in the span that match accepts.
func (b *faultBook) find(from, to time.Time, match func(*fault) bool) *fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.list {
		if !f.from.After(to) && !f.until.Before(from) && match(f) {
			return f
		}
	}
	return nil
}

// held reports whether bytes to the engine may have been delayed in the span.
func (b *faultBook) held(engine string, from, to time.Time) bool {
	return b.find(from.Add(-tickSlack), to, func(f *fault) bool { return f.Engine == engine && f.Kind != kindReset && f.Kind != kindKill }) != nil
}

// beside reports whether another decode engine has been frozen since then while nothing was wrong
// with this one.
func (b *faultBook) beside(engine string, since time.Time) bool {
	now := time.Now()
	if engine == "" || b.stages().at(now) != stageFaults {
		return false
	}
	still := b.find(since, now, func(f *fault) bool {
		return f.Engine != engine && strings.HasPrefix(f.Engine, string(sim.RoleDecode)) && (f.Kind == kindFreeze || f.Kind == kindPartition) && f.from.Before(since)
	})
	return still != nil && b.find(since.Add(-time.Second), now, func(f *fault) bool { return f.Engine == engine }) == nil
}

const goneKept = 4096

// clientGone notes that the client of a request leaves.
func (b *faultBook) clientGone(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.gone) == goneKept {
		b.goneBefore, b.gone = b.gone, map[string]bool{}
	}
	b.gone[id] = true
}

// hasGone reports whether the client of a P's entry has left. An entry has the name
// chatcmpl-soak-3-7-LEG-… if the client's id is soak-3-7.
func (b *faultBook) hasGone(entry string) bool {
	parts := strings.SplitN(entry, "-", 5)
	if len(parts) < 5 {
		return false
	}
	id := strings.Join(parts[1:4], "-")
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gone[id] || b.goneBefore[id]
}

// found judges an entry that no release has freed.
func (b *faultBook) found(l leased, v *tally.Verdict) {
	e := l.entry
	what := b.excuse(l)
	if what == "" || what != excuseStarved && b.stages().calmFor(e.PinnedAt, e.FreedAt) {
		what = "nothing"
		v.Breach(invBlocks, "blocks that were freed by their lease alone, and no fault excuses it", "%s on %s, pinned %.1f s after the load's begin, %d blocks",
			e.RequestID, l.station.Name(), e.PinnedAt.Sub(b.stages().begin).Seconds(), len(e.Blocks))
	}
	b.write(map[string]any{
		"at_s": e.FreedAt.Sub(b.stages().begin).Seconds(), "engine": l.station.Name(), "kind": "left to its lease", "text": what,
		"request": e.RequestID, "pinned_s": e.PinnedAt.Sub(b.stages().begin).Seconds(),
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leases[what]++
}

// answerBound is how long P's answer may take after P pins the blocks, and how long D's receipt of
// them may take after that.
const answerBound = time.Second

// excuse names the fault that kept the blocks from being given back, or "":
//   - P's answer, which names them, was lost, spoilt or delayed on its way;
//   - P itself was frozen. It hears no release, and its leases end at once when it goes on;
//   - the D that was sent them was frozen or swallowed the bytes. When the proxy gives it up by
//     timeouts.first_event, little of the lease is left for a release;
//   - the D that was sent them refused, and the client left before its answer came. The proxy has
//     closed the connection and assumes that D aborts;
//   - the machine was overloaded, as the control streams show. A sound P was taken for a frozen one,
//     or took longer for a prefill than timeouts.prefill_abort_grace.
//
// A D that resets, dies or answers errors is no excuse, because another one can tell P. Neither is
// a client, nor what only slows bytes down.
func (b *faultBook) excuse(l leased) string {
	pinned, freed, name := l.entry.PinnedAt, l.entry.FreedAt, l.station.Name()
	near := func(kinds map[string]bool, mine bool) *fault {
		return b.find(pinned.Add(-answerBound), pinned.Add(answerBound), func(f *fault) bool {
			own := f.Engine == name
			return kinds[f.Kind] && own == mine && (own || strings.HasPrefix(f.Engine, string(sim.RoleDecode)))
		})
	}
	f := near(losesAnswers(), true)
	if f == nil {
		f = b.find(pinned, freed, func(f *fault) bool { return f.Engine == name && f.Kind == kindFreeze })
	}
	if f == nil {
		f = near(swallowsRequests(), false)
	}
	if f == nil && b.hasGone(l.entry.RequestID) {
		f = near(map[string]bool{"sim status": true}, false)
	}
	if f == nil && b.starved(pinned) {
		return excuseStarved
	}
	if f == nil {
		return ""
	}
	role, _, _ := strings.Cut(f.Engine, "-")
	return role + " " + f.Kind
}

const excuseStarved = "a starved machine"

// losesAnswers returns the faults of a P that pins blocks and whose answer does not arrive.
func losesAnswers() map[string]bool {
	return map[string]bool{
		kindReset: true, kindPartition: true, kindFreeze: true,
		"connection " + faultnet.RST: true, "connection " + faultnet.FIN: true, "connection " + faultnet.Stall: true,
		"connection " + faultnet.Blackhole: true, "connection " + faultnet.Corrupt: true, "connection " + faultnet.NoRead: true,
		"sim truncate": true, "sim badjson": true, "sim badhandle": true, "sim corrupt": true, "sim zero": true,
		"sim die": true, "sim random": true,
	}
}

// swallowsRequests returns the faults of a D that the proxy notices only by a timeout.
func swallowsRequests() map[string]bool {
	return map[string]bool{
		kindPartition: true, kindFreeze: true, "connection " + faultnet.Stall: true,
		"connection " + faultnet.Blackhole: true, "connection " + faultnet.NoRead: true, "sim hang": true, "sim random": true,
	}
}

// counts returns the faults so far by kind, and the entries left to their leases by their excuse.
func (b *faultBook) counts() (faults, leases map[string]int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.n), maps.Clone(b.leases)
}

// These are the kinds of faults, except those of a connection and of the engines' answers, which
// have the names of their packages.
const (
	kindScript    = "script" // for new connections, for a while
	kindReset     = "reset"  // RST on all open connections
	kindRefuse    = "refuse" // the port is closed
	kindPartition = "partition"
	kindFreeze    = "freeze" // SIGSTOP
	kindKill      = "kill"   // SIGKILL, and a restart
	kindReplaced  = "certificates replaced"
	kindRefused   = "certificates refused"
	kindStarved   = "taken down, " + excuseStarved

	kindSim        = "sim"         // filed with the name of the engine's fault
	kindLongFreeze = "long freeze" // filed as a freeze
)

// deck returns the kinds of 20 random faults. A run of 3 minutes has about 40 faults and must have
// each kind.
func deck() []string {
	return slices.Concat(
		slices.Repeat([]string{kindScript}, 7), slices.Repeat([]string{kindSim}, 7),
		[]string{kindReset, kindRefuse, kindPartition, kindFreeze, kindFreeze, kindLongFreeze},
	)
}

// drawFault draws the details of a fault of the kind, and how long it lasts.
func drawFault(r *rand.Rand, kind string, role sim.Role) (text string, d time.Duration) {
	d = time.Duration(300+r.IntN(2700)) * time.Millisecond
	switch kind {
	case kindScript:
		return drawScript(r), d
	case kindSim:
		return drawSimFault(r, role), d
	case kindReset:
		return "", 0
	case kindPartition, kindFreeze:
		return "", 2 * d
	case kindLongFreeze: // long enough for the active check to find it
		return "", 12*time.Second + d
	}
	return "", d
}

// drawScript draws what a relay does to each connection. A flipped bit is in the name of the
// protocol, before any body. The proxy cannot see one in a text, a prompt or a handle, and TCP must
// prevent it.
func drawScript(r *rand.Rand) string {
	down := [...]string{"rst@%d", "fin@%d", "stall@%d", "blackhole@%d"}
	switch n := r.IntN(12); {
	case n < 4:
		return "down:" + fmt.Sprintf(down[r.IntN(len(down))], r.IntN(12_000))
	case n < 6:
		return "up:" + fmt.Sprintf(down[r.IntN(len(down))], r.IntN(4_000))
	case n == 6:
		return fmt.Sprintf("down:corrupt@%d", r.IntN(4))
	case n == 7:
		return fmt.Sprintf("down:delay=%dms", 5+r.IntN(45))
	case n == 8:
		return fmt.Sprintf("down:slice=%d,1ms", 16+r.IntN(48))
	case n == 9: // two cores can only do smaller ones of a hundred streams
		return fmt.Sprintf("down:slice=%d", 64+r.IntN(64))
	case n == 10:
		return faultnet.Refuse
	default:
		return faultnet.NoRead
	}
}

// simFaults returns faults of the engines' own answers, as sim.ParseFault reads them. %d is an
// event or a byte.
func simFaults(role sim.Role) []string {
	both := []string{"rst", "fin", "hang", "delay=200ms", "status=500", "status=502", "status=503", "status=429", "late", "slow-accept=100ms", "random=0.2,%d"}
	if role == sim.RolePrefill {
		return append(both, "truncate@%d", "badjson", "nohandle", "badhandle=port-zero", "badhandle=no-host", "badhandle=no-blocks",
			"badhandle=engine", "badhandle=id", "badhandle=port-closed", "badhandle=null", "badhandle=flag-false", "zero", "die@0", "corrupt@0", "status=401")
	}
	return append(both, "kvfail", "error-first", "zero", "error-done@%d", "error-cut@%d", "die@%d", "die@%d:rst", "cut@%d", "cut@%d:rst", "stall@%d", "no-done", "no-finish", "slice@3", "drip=50,1ms", "role-error", "corrupt@%d")
}

func drawSimFault(r *rand.Rand, role sim.Role) string {
	all := simFaults(role)
	text := all[r.IntN(len(all))]
	if strings.Contains(text, "%d") {
		at := r.IntN(40)
		if strings.HasPrefix(text, "truncate") {
			at = r.IntN(600)
		}
		text = fmt.Sprintf(text, at)
	}
	return text
}
