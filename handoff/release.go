package handoff

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/budget"
	"xpyd/kvparams"
	"xpyd/router"
	"xpyd/upstream"
)

const (
	maxReleases     = 32               // at once; more wait for their turn
	maxReleasesEach = maxReleases / 2  // on one D of several: one that stands still leaves room
	releaseDeadline = 10 * time.Second // and never beyond lease − age − releaseMargin
	releaseMargin   = 2 * time.Second
	// releaseTry is what one D has to reject a release, which costs it nothing: one that
	// stands still must not keep the others from it. A drain is not cut, as D may be about
	// to read the blocks, and a second one would read another prompt's.
	releaseTry = 2 * time.Second
	// releaseSettle is what a D whose leg broke off has to abort it, which frees P's
	// blocks too. A D that still lives and was just slow would read the blocks after the
	// release, when they may be another prompt's, and may keep them in its prefix cache.
	releaseSettle = 250 * time.Millisecond
)

// releaseHung is for how long a D that did not answer a release is asked after the others.
const releaseHung = 10 * time.Second

// Places are the releases under way on one D.
type Places struct {
	taken atomic.Int32
	born  time.Time
	hung  atomic.Int64 // until when others are asked first, in nanoseconds since born
}

// NewPlaces is for an engine that has just joined.
func NewPlaces() *Places { return &Places{born: time.Now()} }

func (p *Places) take(limit int32) bool {
	if p.taken.Add(1) <= limit {
		return true
	}
	p.taken.Add(-1)
	return false
}

func (p *Places) free() { p.taken.Add(-1) }

// hangs reports that a release has not been answered of late.
func (p *Places) hangs() bool { return int64(time.Since(p.born)) < p.hung.Load() }

// release is one handle to give back. It owns its bytes.
type release struct {
	k       *Keeper
	id      string
	path    string
	fields  []byte
	blocks  int
	issued  time.Time
	snap    *router.Snapshot
	prefer  *router.Backend   // alive as far as is known; nil: any
	avoid   []*router.Backend // asked before, or just failed
	model   []byte            // another engine would not know it, and free nothing; nil: any
	reject  []byte            // body that D rejects
	drain   []byte            // body of a one-token decode; nil where only rejection is wanted
	charged int64             // of drain, on the byte budget
	ended   bool
	sent    bool // some D may be about to read the blocks
	version bool // choose between the two by D's version
	broken  int  // engines that broke off over the request or its drains
}

// Abandoned is the request of a handle that nobody will decode.
type Abandoned struct {
	LegID  string
	API    kvparams.API
	Fields []byte // header lines of both legs
	Req    *kvparams.Request
	Snap   *router.Snapshot
	Prefer *router.Backend // a D to ask first; nil: any
	Avoid  *router.Backend // a D that just failed; nil if there is none
	Broken int             // engines that broke off over the request
}

// Release gives a live handle back in the background: the client is gone, or no decode will
// come. It copies what it needs of the request.
func (h *Handoff) Release(a Abandoned) {
	k := h.k
	job, why := h.newRelease(a)
	if job == nil {
		h.Lose(why)
		return
	}
	h.transfer()
	k.wg.Add(1)
	go func() {
		defer k.wg.Done()
		defer k.cfg.Bodies.Give(budget.Client{}, job.charged)
		if !k.cfg.Guard(job.run) && !job.ended {
			job.end(Lost)
			k.strand(job.blocks, job.issued, OrphanReleaseFailed)
		}
	}()
}

// newRelease is the job, or why there can be none.
func (h *Handoff) newRelease(a Abandoned) (job *release, why Orphan) {
	cfg := &h.k.cfg
	mode := cfg.KV.Release
	if cfg.Dialect.Reclaim() == kvparams.ReclaimLease {
		return nil, OrphanConnector
	}
	if mode == "off" {
		return nil, OrphanReleaseOff
	}
	job = &release{
		k: h.k, id: a.LegID + "-release", path: a.API.Path(), fields: bytes.Clone(a.Fields),
		blocks: h.handle.Blocks, issued: h.issued, snap: a.Snap, prefer: a.Prefer, sent: h.state == handleSent,
		broken: a.Broken,
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
	if cfg.Dialect.Reclaim() == kvparams.ReclaimReject && mode != "decode" {
		job.reject = join(cfg.Dialect.AppendRelease(nil, a.Req, handle))
		job.version = mode == "auto"
	}
	// A drain is the client's prompt once more: never of one that has cost an engine.
	if a.Broken == 0 && (job.reject == nil || job.version && !allReject(a.Snap)) {
		segs := cfg.Dialect.AppendDrain(nil, a.Req, handle)
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

// allReject: every decode backend frees on rejection, so no copy of the request is
// needed for a drain.
func allReject(snap *router.Snapshot) bool {
	for _, b := range snap.Backends(router.Decode) {
		if !rejectFrees(b.Version()) {
			return false
		}
	}
	return true
}

// rejectFrees: since 0.32 a vLLM that rejects a request with a handle tells P to free
// its blocks, and survives when P cannot be reached. An unknown version does not.
func rejectFrees(version string) bool {
	major, rest, ok := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	if !ok {
		return false
	}
	minor, _, _ := strings.Cut(rest, ".")
	ma, err1 := strconv.Atoi(major)
	mi, err2 := strconv.Atoi(minor)
	return err1 == nil && err2 == nil && (ma > 0 || mi >= 32)
}

// run tries decode backends until one has taken the handle back or time is up.
func (j *release) run() {
	left := min(releaseDeadline, j.k.cfg.KV.Lease-time.Since(j.issued)-releaseMargin)
	deadline := time.Now().Add(left)
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	if left <= 0 || !j.begin(ctx, left) {
		j.lost(OrphanExpired)
		return
	}
	defer func() { <-j.k.slots }()
	asked, wait := !j.able(), releasePause // where none may be asked there is no lack of backends
	for ctx.Err() == nil && j.able() {
		b, busy := j.pick()
		switch {
		case busy:
			pause(ctx, releasePause/10)
			continue
		case b == nil:
			// The whole pool is away, or has failed once: it may be back before the lease ends.
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
	if asked {
		j.lost(OrphanReleaseFailed)
	} else {
		j.lost(OrphanNoDecode)
	}
}

// begin waits for a D that may still abort, and takes a slot. It reports whether there was one.
func (j *release) begin(ctx context.Context, left time.Duration) bool {
	if j.sent {
		pause(ctx, min(releaseSettle, left/4))
	}
	select {
	case j.k.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// able reports that some decode backend may still be asked, in a way that frees the blocks.
func (j *release) able() bool {
	if j.drain != nil && j.broken < j.k.cfg.MaxBroken || j.reject != nil && !j.version {
		return true
	}
	return j.reject != nil && slices.ContainsFunc(j.snap.Backends(router.Decode), func(b *router.Backend) bool { return rejectFrees(b.Version()) })
}

// pick names the next decode backend to ask, the preferred one first and those that hang
// last, and takes a place on it. busy: there are some to ask, but none has a place. A
// rejection takes no slot of the backend, so no lease is taken.
func (j *release) pick() (b *router.Backend, busy bool) {
	if b = j.prefer; b != nil {
		j.prefer = nil
		if b.State() != router.Down && j.takePlace(b, false) {
			return b, false
		}
	}
	for _, hung := range []bool{false, true} {
		skip := slices.Clip(j.avoid)
		for {
			b = j.snap.Pick(router.Want{Role: router.Decode, Skip: skip, Model: j.model})
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

// takePlace takes a place on b, if there is one. hung: also where b hangs.
func (j *release) takePlace(b *router.Backend, hung bool) bool {
	_, places := j.k.cfg.Engine(b)
	if places == nil {
		return true // it was removed, and the try fails
	}
	limit := int32(maxReleasesEach)
	if len(j.snap.Backends(router.Decode)) == 1 {
		limit = maxReleases
	}
	return (hung || !places.hangs()) && places.take(limit)
}

// note remembers that b hangs, until it answers again.
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

// releasePause is the time after the first round over a pool of which nobody took a handle
// back. It doubles with each round, up to a second.
const releasePause = 100 * time.Millisecond

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// try asks one backend, on which a place is taken. A rejection by the engine itself, or a
// whole one-token answer, means that D has told P.
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
		return how, false // it would refuse, and free nothing
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
	if how == Released {
		return how, err == nil && engineRefused(x.Head.Status, answer)
	}
	return how, err == nil && x.Head.Status == fasthttp.StatusOK
}

// engineRefused reports a refusal by the engine's own handler, which is what tells P. Where
// the request model or the server in front of it refuses, or anything between, P never hears
// of it: vLLM names these "Bad Request", or no type.
func engineRefused(status int, answer []byte) bool {
	var e struct {
		Error struct {
			Type string `json:"type"`
		} `json:"error"`
	}
	if json.Unmarshal(answer, &e) != nil {
		return false
	}
	switch status {
	case fasthttp.StatusBadRequest:
		return e.Error.Type != "" && e.Error.Type != "Bad Request"
	case fasthttp.StatusNotFound: // the model: it has been unloaded
		return e.Error.Type == "NotFoundError"
	}
	return false
}

func (j *release) end(how End) {
	j.ended = true
	j.k.cfg.Ended(how)
	j.k.cfg.Ledger.unpin(j.blocks)
}

func (j *release) lost(why Orphan) {
	j.end(why.end())
	j.k.strand(j.blocks, j.issued, why)
	j.k.cfg.Log.Warn().Str("request_id", j.id).Int("blocks", j.blocks).Stringer("reason", why).Msg("prefill blocks wait for their lease")
}
