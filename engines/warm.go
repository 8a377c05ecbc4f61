package engines

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"xpyd/engines/handoff"
	"xpyd/kvparams"
	"xpyd/netio/upstream"
	"xpyd/router"
)

const (
	warmTick     = 500 * time.Millisecond // how often due pairs are looked for
	warmRound    = 2 * time.Second        // how long one list of them is worked on
	warmAtOnce   = 8                      // so that a pool that comes up is not flooded
	warmTimeout  = 30 * time.Second       // of one leg; a first handshake takes seconds
	warmAttempts = 3                      // at a cold pair; after that, requests have to try it
	warmPause    = 2 * time.Second        // between attempts, and longer after each
)

// warmer sends one token over pairs of engines that are new to each other, because their first
// transfer has to pay for a handshake. It does the same over pairs whose ban ends, so that no client's
// request is the probe.
type warmer struct {
	s      *Set
	ctx    context.Context
	cancel context.CancelFunc
	slots  chan struct{}
	wg     sync.WaitGroup

	mu   sync.Mutex
	busy map[router.Pair]*warming
}

// warming holds what the warmer knows of a pair that it works on.
type warming struct {
	running bool
	failed  int
	next    time.Time // earliest time of the next attempt
}

func newWarmer(s *Set) *warmer {
	w := &warmer{s: s, slots: make(chan struct{}, warmAtOnce), busy: map[router.Pair]*warming{}}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

func (w *warmer) start() {
	if w.s.cfg.Warmup {
		w.wg.Go(w.run)
	}
}

// warms is false for b if the legs run at once, because then xpyd learns nothing before a request needs
// it.
func (w *warmer) warms(b *router.Backend) bool {
	d := w.s.dialect(b)
	return w.s.cfg.Warmup && d.HandleInAnswer() && !d.Concurrent()
}

// close waits for warm-ups under way. A prefill may still answer within the abort grace.
func (w *warmer) close() {
	w.cancel()
	w.wg.Wait()
}

// cold is called for an engine that has just come up. If avoid is true, requests go elsewhere until
// its pairs are warm, as far as they can.
func (w *warmer) cold(b *router.Backend, avoid bool) {
	if w.warms(b) {
		w.s.cfg.Router.Pairs().Chill(b, avoid)
	}
}

func (w *warmer) run() {
	tick := time.NewTicker(warmTick)
	defer tick.Stop()
	for {
		w.round(w.s.cfg.Router.Snapshot())
		select {
		case <-w.ctx.Done():
			return
		case <-tick.C:
			w.forget()
		}
	}
}

// round starts the warm-ups that are due. Probes are few and wait for a slot, as each is due only
// once. Cold pairs stay due, and are started for warmRound at most.
func (w *warmer) round(snap *router.Snapshot) {
	probes, cold := snap.Pairs().WarmUps(snap)
	for _, x := range probes {
		if w.claim(x) {
			w.wg.Go(func() {
				select {
				case w.slots <- struct{}{}:
					w.warm(snap, x)
				case <-w.ctx.Done():
				}
			})
		}
	}
	over := time.After(warmRound)
	for _, x := range cold {
		select {
		case w.slots <- struct{}{}:
		case <-over:
			return
		case <-w.ctx.Done():
			return
		}
		if !w.claim(x) {
			<-w.slots
			continue
		}
		w.wg.Go(func() { w.warm(snap, x) })
	}
}

// forget drops what the warmer knows of pairs that have not been due for long, as their backends may
// have left.
func (w *warmer) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.busy, func(_ router.Pair, m *warming) bool {
		return !m.running && time.Since(m.next) > warmTimeout
	})
}

// claim marks the pair as worked on. It fails if the pair already is, or has just failed.
func (w *warmer) claim(x router.Pair) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.busy[x]
	if m == nil {
		m = &warming{}
		w.busy[x] = m
	}
	if m.running || time.Now().Before(m.next) {
		return false
	}
	m.running = true
	return true
}

// warm works on a pair in the slot that its caller has taken.
func (w *warmer) warm(snap *router.Snapshot, x router.Pair) {
	defer func() { <-w.slots }()
	if !w.s.cfg.Guard(func() { w.attempt(snap, x) }) {
		w.note(snap, x, errors.New("panic"))
	}
}

func (w *warmer) attempt(snap *router.Snapshot, x router.Pair) {
	started := time.Now()
	err := w.send(snap, x)
	if w.ctx.Err() != nil {
		return
	}
	w.note(snap, x, err)
	e := w.s.cfg.Log.Debug()
	if err != nil && !errors.Is(err, errUnlisted) && !errors.Is(err, upstream.ErrRemoved) {
		e = w.s.cfg.Log.Warn().Err(err)
	}
	e.Str("prefill", x.Prefill.URL).Str("decode", x.Decode.URL).Dur("took_ms", time.Since(started)).Msg("warm-up of a pair")
}

// note remembers how the attempt ended.
func (w *warmer) note(snap *router.Snapshot, x router.Pair, err error) {
	w.s.cfg.WarmedUp(err == nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.busy[x]
	if m == nil {
		return
	}
	m.running = false
	m.failed++
	m.next = time.Now().Add(time.Duration(m.failed) * warmPause)
	switch {
	case err == nil:
		snap.Pairs().Worked(x)
	case inVain(err):
		snap.Pairs().Unprobed(x)
	case m.failed < warmAttempts:
		return
	}
	delete(w.busy, x)
	snap.Pairs().Warm(x)
}

// inVain reports that no request of the proxy's own can ever show whether the pair works.
func inVain(err error) bool {
	status := statusError(0)
	return errors.Is(err, errUnlisted) || errors.Is(err, errStrangers) || errors.As(err, &status) && status.refused()
}

// statusError is a status other than 200 in the answer to a request of the proxy's own.
type statusError int

func (e statusError) Error() string { return "status " + strconv.Itoa(int(e)) }

// refused reports that the request was at fault, so that the answer says nothing of the backend.
func (e statusError) refused() bool { return e >= 400 && e < 500 }

// news reports that err says something of the pair, as an answer of D does unless it is a 4xx. A D
// that is busy or breaks off says nothing of P's blocks.
func news(err error) bool {
	var ue *upstream.Error
	return !errors.As(err, &ue) && !inVain(err)
}

// warmUp is one request of the proxy's own, through both legs.
type warmUp struct {
	s       *Set
	snap    *router.Snapshot
	pair    router.Pair
	legID   string
	fresh   bool          // on a connection of its own
	within  time.Duration // of one leg; 0: warmTimeout
	fields  []byte
	req     kvparams.Request
	leg     kvparams.Leg
	extent  kvparams.Extent // of the handle
	began   time.Time       // the first byte of the last answer
	handoff handoff.Handoff
}

func (w *warmer) send(snap *router.Snapshot, x router.Pair) error {
	model, err := w.s.aModel(x.Prefill, x.Decode)
	if err != nil {
		return err
	}
	u := &warmUp{s: w.s, snap: snap, pair: x, legID: "xpyd-warmup-" + lotID(), handoff: w.s.cfg.Handoffs.Handoff()}
	u.fields, u.leg.ID, u.leg.Target = w.s.fields, u.legID, w.s.Target(x.Decode)
	if err := u.req.Parse(kvparams.Completions, warmBody(model)); err != nil {
		return fmt.Errorf("build request: %w", err)
	}
	if err := u.prefill(w.ctx); err != nil {
		return fmt.Errorf("prefill: %w", err)
	}
	if err := u.decode(w.ctx); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	return nil
}

// lotID returns a random id, which tells a request of xpyd's own from the others.
func lotID() string { return fmt.Sprintf("%08x", rand.Uint32()) }

// warmBody returns a request with a prompt of a few blocks. No cache holds the prompt, as cached
// blocks are not sent.
func warmBody(model string) []byte {
	body, _ := json.Marshal(map[string]any{ // strings and numbers always marshal
		"model": model, "max_tokens": 1, "temperature": 0,
		"prompt": fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()) + strings.Repeat(" warm up", 64),
	})
	return body
}

// These errors say why there is no model to warm up with.
var (
	errUnlisted  = errors.New("an engine's models are not known") // the engine wants a key for its list
	errStrangers = errors.New("the two engines list no model in common")
)

// exchange sends one leg and reads its whole answer, which has limits.answer bytes at most.
func (u *warmUp) exchange(ctx context.Context, b *router.Backend, body kvparams.Segments, again bool) ([]byte, error) {
	var x upstream.Exchange
	defer x.Finish()
	stop := context.AfterFunc(ctx, func() { x.Cut(cutStop, time.Now().Add(u.s.cfg.AbortGrace())) })
	defer stop()
	req := &upstream.Request{Method: "POST", Path: kvparams.Completions.Path(), ID: u.legID, Fields: u.fields, Body: body, Fresh: u.fresh}
	if err := x.Do(u.s.Client(b), req, time.Now().Add(cmp.Or(u.within, warmTimeout)), again); err != nil {
		return nil, err
	}
	u.began = x.Began
	answer, err := x.ReadAll(nil, u.s.cfg.Answer)
	if err == nil && x.Head.Status != http.StatusOK {
		err = statusError(x.Head.Status)
	}
	return answer, err
}

func (u *warmUp) prefill(ctx context.Context) error {
	dialect := u.s.dialect(u.pair.Prefill)
	answer, err := u.exchange(ctx, u.pair.Prefill, dialect.AppendPrefill(nil, &u.req, &u.leg), true)
	var ue *upstream.Error
	if errors.As(err, &ue) && ue.Stage == upstream.StageBody {
		u.s.cfg.Handoffs.Orphaned(u.pair.Prefill, handoff.OrphanAnswerLost)
	}
	if err != nil {
		return err
	}
	ans, err := dialect.ParseAnswer(answer)
	if err == nil {
		_, err = u.s.Covers(ans, u.pair.Prefill, u.pair.Decode)
	}
	if err != nil {
		u.s.cfg.Handoffs.Orphaned(u.pair.Prefill, handoff.OrphanUnusable)
		return errors.New("answer without a usable handle")
	}
	u.s.Seen(u.pair.Prefill, ans.Handle.EngineID)
	if ans.Handle.None() {
		return errors.New("answer without a handle")
	}
	u.extent = ans.Extent()
	u.handoff.Issue(ans.Handle, u.pair.Prefill, u.began)
	if !u.s.cfg.Handoffs.Allows(ans.Handle.RemoteHost) {
		u.handoff.Lose(handoff.OrphanHost)
		return fmt.Errorf("handle of host %q, which is not in kv.allow_hosts", ans.Handle.RemoteHost)
	}
	if !u.handoff.Fresh() {
		u.handoff.Lose(handoff.OrphanExpired)
		return errors.New("the answer took so long that its lease ran out")
	}
	return nil
}

// decode ends the handle, whatever the result.
func (u *warmUp) decode(ctx context.Context) error {
	h := &u.handoff
	handle := h.SendTo(u.pair.Decode)
	answer, err := u.exchange(ctx, u.pair.Decode, u.s.dialect(u.pair.Decode).AppendDecode(nil, &u.req, handle, &u.leg), false)
	if err == nil {
		var whole kvparams.Completion
		err = whole.Parse(answer)
		if whole.Handle() {
			u.s.cfg.Handoffs.KeptByDecode(u.pair.Decode)
		}
	}
	if err == nil {
		u.s.Used(u.pair.Prefill, u.extent)
		h.End(handoff.Burnt)
		return nil
	}
	status := statusError(0)
	errors.As(err, &status)
	if h.Failed(err, int(status), answer); !upstream.IsDial(err) && news(err) {
		u.snap.Pairs().Failed(u.pair)
	}
	var ue *upstream.Error
	if errors.As(err, &ue) && ue.TimedOut() && ue.Stage > upstream.StageWrite {
		h.Cut(u.pair.Decode) // it may be reading the blocks
		return err
	}
	h.Release(handoff.Abandoned{
		LegID: u.legID, API: kvparams.Completions, Fields: u.fields, Req: &u.req, Snap: u.snap, Avoid: u.pair.Decode,
	})
	return err
}
