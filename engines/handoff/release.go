package handoff

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/intake/budget"
	"xpyd/kvparams"
	"xpyd/netio/upstream"
	"xpyd/router"
)

const (
	maxReleases     = 32               // at once; more wait for a slot
	maxReleasesEach = maxReleases / 2  // on one D of several, so that one that hangs leaves room
	releaseDeadline = 10 * time.Second // and never beyond lease − age − releaseMargin
	releaseMargin   = 2 * time.Second
	// releaseTry is the time that one D has to reject a release. To reject costs D nothing, and a D
	// that hangs must not keep the others from the release. A drain is not cut short, because D may be
	// about to read the blocks, and a second D would then read another prompt's.
	releaseTry = 2 * time.Second
	// releaseSettle is the time that a D whose leg broke off has to abort the leg, which frees P's
	// blocks too. A D that still lives and was just slow would read the blocks after the release. They
	// may then be another prompt's, and D may keep them in its prefix cache.
	releaseSettle = 250 * time.Millisecond
)

// releaseHung is how long a D that did not answer a release is asked only after the others.
const releaseHung = 10 * time.Second

// Places counts the running releases on one D.
type Places struct {
	taken atomic.Int32
	born  time.Time
	hung  atomic.Int64 // others are asked first until then, in nanoseconds since born
}

// NewPlaces returns the places of an engine that has just joined.
func NewPlaces() *Places { return &Places{born: time.Now()} }

func (p *Places) take(limit int32) bool {
	if p.taken.Add(1) <= limit {
		return true
	}
	p.taken.Add(-1)
	return false
}

func (p *Places) free() { p.taken.Add(-1) }

// hangs reports that a release was not answered recently.
func (p *Places) hangs() bool { return int64(time.Since(p.born)) < p.hung.Load() }

// release is one handle to give back. It owns its bytes.
type release struct {
	k       *Keeper
	id      string
	path    string
	fields  []byte
	blocks  int
	since   time.Time // see Handoff
	issued  time.Time
	snap    *router.Snapshot
	from    *router.Backend   // P, whose model decides where the request names none
	prefer  *router.Backend   // alive as far as is known; nil for any
	avoid   []*router.Backend // asked before, or have just failed
	model   []byte            // an engine without it would free nothing; nil for any
	reject  []byte            // body that D rejects
	drain   []byte            // body of a one-token decode; nil if only a rejection is wanted
	charged int64             // bytes of drain charged to the byte budget
	ended   bool
	sent    bool            // some D may be about to read the blocks
	waits   bool            // a D that is asked would wait for a P that is gone, and keep blocks for that
	once    bool            // see Handoff.once
	taken   *router.Backend // the D that may have begun with such a handle
	used    bool            // it did not fail: what it answers is too much to hold
	aborts  bool            // it aborts, if it lives
	version bool            // D's version decides between the two
	broken  int             // engines that broke off over the request or its drains
	begun   func()          // see Abandoned
}

// Abandoned describes the request of a handle that no D will use.
type Abandoned struct {
	LegID  string
	API    kvparams.API
	Fields []byte // header lines of both legs
	Req    *kvparams.Request
	Snap   *router.Snapshot
	Prefer *router.Backend // the D to ask first; nil for any
	Avoid  *router.Backend // a D that has just failed; nil if there is none
	Broken int             // engines that broke off over the request
	Begun  func()          // called when the release waits for no other ones any more; may be nil
}

// Release gives a live handle back in the background, because the client is gone or no decode will
// follow. It copies what it needs from the request.
func (h *Handoff) Release(a Abandoned) {
	k := h.k
	job, why := h.newRelease(a)
	if a.Begun == nil {
		a.Begun = func() {}
	}
	if job == nil {
		h.Lose(why)
		a.Begun()
		return
	}
	job.begun = sync.OnceFunc(a.Begun)
	from := h.transfer()
	k.wg.Add(1)
	go func() {
		defer k.wg.Done()
		defer job.begun()
		defer from.HandleEnded()
		defer k.cfg.Bodies.Give(budget.Client{}, job.charged)
		if !k.cfg.Guard(job.run) && !job.ended {
			job.end(Lost)
			k.strand(job.blocks, job.since, OrphanReleaseFailed)
		}
	}()
}

// newRelease returns the release, or why there can be none.
func (h *Handoff) newRelease(a Abandoned) (job *release, why Orphan) {
	cfg := &h.k.cfg
	mode, dialect := cfg.KV.Release, cfg.Dialects.Of(h.from.Connector)
	if dialect.Reclaim() == kvparams.ReclaimLease {
		return nil, OrphanConnector
	}
	if mode == "off" {
		return nil, OrphanReleaseOff
	}
	job = &release{
		k: h.k, id: a.LegID + "-release", path: a.API.Path(), fields: bytes.Clone(a.Fields),
		blocks: h.handle.Blocks, since: h.since, issued: h.issued, snap: a.Snap, from: h.from, prefer: a.Prefer, sent: h.state != handleIssued, waits: h.waits(),
		broken: a.Broken, once: h.once(), taken: h.taken(), used: a.Avoid == nil && !h.failed, aborts: h.aborts,
	}
	if dialect.Reclaim() == kvparams.ReclaimDrain {
		job.id = a.LegID // P pairs the drain with its prefill by this id
	}
	if a.Snap.Mixed(router.Decode) {
		job.model = bytes.Clone(a.Req.Model())
	}
	if a.Avoid != nil {
		job.avoid = append(job.avoid, a.Avoid)
	}
	handle := h.handle
	if cfg.KV.RewriteLoopback && loopback(handle.RemoteHost) {
		handle = handle.WithHost(hostOf(h.from))
	}
	refusal := dialect.Reclaim() == kvparams.ReclaimRefusal
	if refusal || dialect.Reclaim() == kvparams.ReclaimReject && mode != "decode" {
		job.reject = join(dialect.AppendRelease(nil, a.Req, handle))
		job.version = mode == "auto" && !refusal
	}
	// A drain sends the client's prompt once more, so there is none for a prompt that has cost an
	// engine.
	if a.Broken == 0 && (job.reject == nil || job.version && !allReject(a.Snap, h.from)) && job.taken == nil {
		segs := dialect.AppendDrain(nil, a.Req, handle, a.LegID)
		if n := int64(segs.Len()); cfg.Bodies.Take(budget.Client{}, n, 0) == budget.Granted {
			job.drain, job.charged = join(segs), n
		} else if job.reject == nil {
			return nil, OrphanReleaseFailed
		}
	}
	return job, 0
}

func join(segs kvparams.Segments) []byte {
	return bytes.Join(segs, nil)
}

// run tries decode backends until one has taken the handle back or the time is up.
func (j *release) run() {
	left := min(releaseDeadline, j.k.cfg.KV.Lease-time.Since(j.since)-releaseMargin)
	deadline := time.Now().Add(left)
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	if j.taken != nil {
		j.begun()
		j.endTaken(ctx)
		return
	}
	if !j.begin(ctx, left) {
		return
	}
	defer func() { <-j.k.slots }()
	asked, wait := !j.able(), releasePause // if none may be asked, none is missing
	for ctx.Err() == nil && j.able() && j.taken == nil && !j.gone() {
		b, busy := j.pick()
		switch {
		case busy:
			pause(ctx, releasePause/10)
			continue
		case b == nil:
			// The whole pool is down or has failed once, but may be back before the lease ends.
			j.avoid = nil
			pause(ctx, wait)
			wait = min(2*wait, time.Second)
			continue
		}
		asked = true
		if how, ok := j.try(b, deadline); ok {
			j.end(how)
			return
		}
		j.avoid = append(j.avoid, b)
	}
	switch {
	case j.gone():
		j.end(Lost)
	case j.taken != nil && ctx.Err() == nil:
		j.endTaken(ctx)
	case asked, j.sourceDown():
		j.lost(OrphanReleaseFailed)
	default:
		j.lost(OrphanNoDecode)
	}
}

// begin waits for a P that is down, gives a D that may have seen the handle time to abort, and takes a slot. If it gets
// none, it ends the handle.
func (j *release) begin(ctx context.Context, left time.Duration) bool {
	if j.sourceDown() {
		j.begun() // it may wait long for that, and for no other release
	}
	if left > 0 && !j.awaitSource(ctx) { // without a slot, which others need
		j.lost(OrphanReleaseFailed)
		return false
	}
	if left > 0 && j.sent {
		pause(ctx, min(releaseSettle, left/4))
	}
	if left > 0 {
		select {
		case j.k.slots <- struct{}{}:
			j.begun()
			return true
		case <-ctx.Done():
		}
	}
	j.lost(OrphanExpired)
	return false
}

// able reports that a decode backend may still be asked, in a way that frees the blocks.
func (j *release) able() bool {
	if j.drain != nil && j.broken < j.k.cfg.MaxBroken || j.reject != nil && !j.version {
		return true
	}
	return j.reject != nil && slices.ContainsFunc(j.snap.Backends(router.Decode), func(b *router.Backend) bool { return b.Connector == j.from.Connector && rejectFrees(b.Version()) })
}

// pick takes a place on the next decode backend to ask. The preferred one comes first, and those that
// hang come last. busy is true if there are backends to ask, but none has a place. A rejection takes
// no slot of the backend, so no router lease is taken.
func (j *release) pick() (b *router.Backend, busy bool) {
	if j.sourceDown() {
		return nil, false
	}
	if b = j.prefer; b != nil {
		j.prefer = nil
		if b.State() != router.Down && j.takePlace(b, false) {
			return b, false
		}
	}
	for _, hung := range []bool{false, true} {
		skip := slices.Clip(j.avoid)
		for {
			b = j.snap.Pick(router.Want{Role: router.Decode, Skip: skip, Model: j.model, Peer: j.from, Like: j.from})
			if b == nil {
				break
			}
			if busy = true; j.takePlace(b, hung) {
				return b, false
			}
			skip = append(skip, b)
		}
	}
	return nil, busy
}

// only reports whether b is the only decode backend on another engine than the one whose blocks are released.
func (j *release) only(b *router.Backend) bool {
	return !slices.ContainsFunc(j.snap.Backends(router.Decode), func(o *router.Backend) bool { return o != b && !router.SharesEngine(o, j.from) })
}

// takePlace takes a place on b, if there is one. If hung is true, b may be one that hangs.
func (j *release) takePlace(b *router.Backend, hung bool) bool {
	_, places := j.k.cfg.Engine(b)
	if places == nil {
		return true // b was removed, so the try fails
	}
	limit := int32(maxReleasesEach)
	if j.only(b) {
		limit = maxReleases
	}
	return (hung || !places.hangs()) && places.take(limit)
}

// note remembers that b hangs until it answers again.
func (j *release) note(b *router.Backend, err error) {
	_, places := j.k.cfg.Engine(b)
	var ue *upstream.Error
	switch {
	case places == nil:
	case err == nil:
		places.hung.Store(0)
	case errors.As(err, &ue) && ue.TimedOut():
		places.hung.Store(int64(time.Since(places.born) + releaseHung))
	}
}

func (j *release) freePlace(b *router.Backend) {
	if _, places := j.k.cfg.Engine(b); places != nil {
		places.free()
	}
}

// releasePause is the pause after the first round over a pool in which no backend took the handle
// back. It doubles with each round, up to a second.
const releasePause = 100 * time.Millisecond

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// try asks one backend, on which a place is taken. It succeeds if D has told P, which D does when the
// engine itself rejects the request, and when it answers a drain in full.
func (j *release) try(b *router.Backend, deadline time.Time) (how End, ok bool) {
	defer j.freePlace(b)
	req := &upstream.Request{Method: "POST", ID: j.id, Fields: j.fields}
	switch {
	case j.reject != nil && (!j.version || rejectFrees(b.Version())):
		how, req.Path, req.Body = Released, "/v1/completions", [][]byte{j.reject}
		if at := time.Now().Add(releaseTry); at.Before(deadline) {
			deadline = at
		}
	case j.drain != nil && j.broken < j.k.cfg.MaxBroken:
		how, req.Path, req.Body = Drained, j.path, [][]byte{j.drain}
	default:
		return how, false // b would refuse, and free nothing
	}
	var x upstream.Exchange
	defer x.Finish()
	client, _ := j.k.cfg.Engine(b)
	err := x.Do(client, req, deadline, false)
	var answer []byte
	if err == nil {
		answer, err = x.ReadAll(nil, j.k.cfg.Answer)
	}
	j.note(b, err)
	var ue *upstream.Error
	if how == Drained && errors.As(err, &ue) && ue.BrokeOff() {
		j.broken++
	}
	if how == Drained && j.once && begun(err, x.Head.Status, answer) {
		j.taken, j.used, j.aborts = b, false, aborts(err)
	}
	if how == Released {
		return how, err == nil && engineRefused(x.Head.Status, answer)
	}
	return how, err == nil && x.Head.Status == fasthttp.StatusOK
}

func (j *release) end(how End) {
	j.ended = true
	j.k.cfg.Ended(how)
	j.k.cfg.Ledger.unpin(j.blocks)
}

func (j *release) lost(why Orphan) {
	j.end(why.end())
	j.k.strand(j.blocks, j.since, why)
	j.k.cfg.Log.Warn().Str("request_id", j.id).Int("blocks", j.blocks).Stringer("reason", why).Msg("prefill blocks wait for their lease")
}
