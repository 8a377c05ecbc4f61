package sim

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// generation is one accepted completion request on its way through the engine.
type generation struct {
	c       *core
	x       *exchange
	r       *request
	h       handle
	api     api
	faults  faultSet
	rec     *Record
	id      string // of the answer
	created int64  // seconds since 1970
	units   []*unit
	events  *eventStream // nil unless streamed
	seq     *sequence    // in an engine's steps; nil without
	start   time.Time
	granted time.Time // its turn came; zero while it queues
	first   time.Time // its prompt's KV was in place; zero before

	counted int // tokens that the metrics have

	pulled bool   // its KV comes from another engine
	cached int    // cached_tokens to report
	handle []byte // kv_transfer_params to answer, nil for null
	ec     []byte // likewise, ec_transfer_params
}

// unit is one choice: one prompt, one sequence in the engine.
type unit struct {
	index      int // of the choice in the answer
	choice     int // among the n of its prompt
	prompt     prompt
	kv         kv
	internalID string // what the engine and its peers call it
	script     script
	cached     int       // tokens of the prompt found in this engine's cache
	call       *toolCall // the function call that it says; nil for text
	tokens     []string  // as they are shown
	ids        []int     // of the tokens as the model says them
	reason     string    // why the engine ended it: "stop" or "length"
	stopReason string    // the stop string met, or ""
}

// prefillOnly reports whether this is the first leg: its KV is kept for a reader.
func (g *generation) prefillOnly() bool {
	switch o := g.c.o; {
	case !o.connector():
		return false
	case o.stores():
		return o.Role == RolePrefill
	case o.Connector == ConnectorSGLang:
		return o.Role == RolePrefill && g.r.room > 0
	case o.Connector == ConnectorP2P:
		return g.h.members["remote_decoder"] != nil
	}
	return g.h.remoteDecode()
}

// complete serves one completion request, from its bytes to its answer.
func (c *core) complete(ctx context.Context, x *exchange, shape api) {
	g := &generation{c: c, x: x, api: shape, start: time.Now()}
	g.created = g.start.Unix()
	g.rec = newRecord(g)
	defer func() {
		c.e.records.keep(g.rec)
		c.e.records.logLine(g.rec)
	}()
	r, rejection := parseRequest(x.body, shape)
	if rejection != nil {
		g.reject(rejection)
		return
	}
	g.accept(r)
	var err error
	if g.faults, err = c.e.faultsFor(r.prompts, g.leg()); err != nil {
		g.reject(badRequest("", "%v", err))
		return
	}
	if g.faultBefore(ctx) {
		return
	}
	if c.adapters.has(r.model) { // it has blocks of its own
		r.cacheSalt, r.model = r.cacheSalt+"\x00"+r.model, ""
	}
	if rejection := r.verify(c.o); rejection != nil {
		g.reject(rejection)
		return
	}
	g.rec.PromptIDs = r.reused
	g.plan()
	if p := c.o.Profile; p != nil && !c.pause(ctx, ms(p.RequestMS)) {
		g.leaveQueue(nil)
		return
	}
	if c.o.Role != RoleEncode && !g.pulls() {
		g.needEncodings()
	}
	if c.o.encodes() {
		g.encode()
	}
	if g.prefillOnly() {
		g.prefill(ctx)
	} else {
		g.decode(ctx)
	}
}

// accept notes what the request model read.
func (g *generation) accept(r *request) {
	g.r = r
	g.id = g.name()
	g.readHandle()
	rec := g.rec
	rec.ID, rec.Stream, rec.MaxTokens, rec.Media = g.id, r.stream, r.maxTokens, len(r.media)
	rec.DoRemoteDecode, rec.DoRemotePrefill = g.h.remoteDecode(), g.h.remotePrefill()
	for _, p := range r.prompts {
		rec.PromptTokens += p.tokens
	}
	switch {
	case g.c.o.Role == RoleEncode:
		rec.Leg = "encode"
	case g.prefillOnly():
		rec.Leg = "prefill"
	case g.pulls():
		rec.Leg = "decode"
		rec.BlockIDs, rec.RemoteRequestID, rec.RemoteEngineID = g.h.blocks, g.h.request, g.h.peer.engine
		rec.RemoteHost, rec.RemotePort = g.h.peer.host, g.h.peer.port
		rec.HandleReuse = g.h.request != "" && g.c.e.records.seen(g.h.request)
	}
}

// leg is the tag of the fault markers that hit this request.
func (g *generation) leg() string {
	if g.prefillOnly() {
		return "P"
	}
	return "D"
}

// plan makes the choices and computes what each of them will say.
func (g *generation) plan() {
	for p, prompt := range g.r.prompts {
		kv := newKV(prompt, g.c.o, g.r.cacheSalt)
		for choice := range g.r.n {
			u := &unit{index: len(g.units), choice: choice, prompt: prompt, kv: kv}
			u.internalID = g.api.internalID(g.id, p) + "-" + randomHex(4)
			if g.r.n > 1 {
				u.internalID = string(appendInt(nil, choice)) + "_" + u.internalID
			}
			u.script = prompt.script(choice)
			g.units = append(g.units, u)
		}
	}
	if f, ok := g.faults.find(FaultCached); ok {
		g.cached = f.Value
	}
	g.write()
}

// write computes the tokens of every unit, and once more when the KV turns out to be wrong.
func (g *generation) write() {
	for _, u := range g.units {
		u.write(g.r, g.c.o.MaxModelLen)
	}
}

func (u *unit) write(r *request, longest int) {
	limit, reason := r.maxTokens, "length"
	if r.endless(u.prompt, longest) {
		limit, reason = max(naturalEnd-u.script.from, r.minTokens, 1), "stop"
	}
	if end, ok := u.script.eosAfter(); ok && !r.ignoreEOS && max(end, r.minTokens) < limit+1 {
		limit, reason = max(end, r.minTokens), "stop"
	}
	u.call, u.tokens, u.ids, u.reason, u.stopReason = nil, make([]string, 0, limit), make([]int, 0, limit), reason, ""
	if t := r.toolFor(u.script); t != nil {
		u.callTool(t, r)
		u.ids = idsOf(u.tokens)
		return
	}
	for i := range limit {
		u.tokens = append(u.tokens, u.script.token(i))
		u.ids = append(u.ids, TokenID(u.tokens[i]))
		if i >= r.minTokens && slices.Contains(r.stopIDs, u.ids[i]) {
			u.tokens[i], u.reason = "", "stop" // the token counts, and is not shown
			break
		}
	}
	u.cutAtStop(r.stop)
	u.ids = u.ids[:len(u.tokens)]
	u.holdBack(r)
}

// cutAtStop ends the answer before the first stop string. Text that might belong to a stop string
// is held back, so no event shows a part of one.
func (u *unit) cutAtStop(stops []string) {
	text := strings.Join(u.tokens, "")
	cut, stop := len(text), ""
	for _, s := range stops {
		if at := strings.Index(text, s); s != "" && at >= 0 && (at < cut || stop == "") {
			cut, stop = at, s
		}
	}
	if stop == "" {
		return
	}
	u.reason, u.stopReason = "stop", stop
	end := 0
	for i, token := range u.tokens {
		begin := min(end, cut)
		end += len(token)
		u.tokens[i] = text[begin:min(end, cut)]
		if end >= cut+len(stop) {
			u.tokens = u.tokens[:i+1]
			return
		}
	}
}

// holdBack shows the text of each token as late as vLLM does for a request with stop strings: the last characters, as many
// as a stop string may have before its last one, wait for what follows them.
func (u *unit) holdBack(r *request) {
	held := 0
	for _, s := range r.stop {
		held = max(held, utf8.RuneCountInString(s)-1)
	}
	if held == 0 || r.logprobs >= 0 {
		return
	}
	full := []rune(strings.Join(u.tokens, ""))
	made, shown := 0, 0
	for i, token := range u.tokens {
		made += utf8.RuneCountInString(token)
		end := max(shown, made-held)
		if i == len(u.tokens)-1 {
			end = len(full)
		}
		u.tokens[i], shown = string(full[shown:end]), end
	}
}

func (g *generation) promptTokens() int {
	total := 0
	for _, p := range g.r.prompts {
		total += p.tokens
	}
	return total
}

func (g *generation) outputTokens() int {
	total := 0
	for _, u := range g.units {
		total += len(u.tokens)
	}
	return total
}

// steps is how many tokens the longest unit has.
func (g *generation) steps() int {
	longest := 0
	for _, u := range g.units {
		longest = max(longest, len(u.tokens))
	}
	return longest
}

// blocks is how many KV blocks u needs up to its end. Its last token has no KV.
func (g *generation) blocks(u *unit) int {
	return g.c.o.blocksFor(u.prompt.tokens + max(len(u.tokens)-1, 0))
}

// reserve queues for what the units need.
func (g *generation) reserve() *reservation {
	r := &reservation{computes: g.prefillOnly() || !g.pulls()}
	for _, u := range g.units {
		r.seats = append(r.seats, &seat{kv: u.kv, want: g.blocks(u), reads: g.r.readsCache()})
	}
	g.c.ledger.reserve(r)
	return r
}

// admitted notes what of the prompts was cached when r was granted.
func (g *generation) admitted(r *reservation) {
	g.granted = time.Now()
	g.c.metrics.scheduled(g, r)
	for i, s := range r.seats {
		u := g.units[i]
		u.cached = s.hits * g.c.o.BlockSize
		g.checkKV(u, s.held)
		if u.choice == 0 {
			g.rec.CachedTokens += u.cached
		}
	}
	if !g.faults.has(FaultCached) {
		g.cached = g.rec.CachedTokens
	}
}

// checkKV makes the answer of u wrong if contents, the KV of its first blocks, are not those of
// its prompt.
func (g *generation) checkKV(u *unit, contents []uint64) {
	if slices.Equal(contents, u.kv.contents[:len(contents)]) {
		return
	}
	g.rec.WrongKV = true
	u.script = newWrongScript(u.prompt.text, u.choice, contents)
	u.write(g.r, g.c.o.MaxModelLen)
}

// reject answers a 4xx and gives the handle back, if the engine is new enough for that. If the
// request model refuses, the request was never accepted, so its handle is unknown here and waits
// for its lease.
func (g *generation) reject(e *apiError) {
	g.rec.Outcome, g.rec.HandleReuse = "rejected", false
	g.send(e)
	g.emit(PhaseRejected, 0)
	if !g.pulls() {
		return
	}
	if g.h.alone() && !g.h.sent {
		g.die("dead")
		return
	}
	if g.c.o.releasesOnReject() {
		c, h := g.c, g.h
		c.spawn(func() {
			if !c.notify(h, freedByReject) && c.o.diesOfLostPeer() {
				c.kill()
			}
		})
	}
}

// send answers e.
func (g *generation) send(e *apiError) {
	g.rec.Status = e.status
	g.file("")
	_ = g.x.answer(e.status, "application/json", g.api.appendError(nil, e)) // a client that has gone misses it
}

// file shows the record before the last byte of an answer goes out. So a client that has the
// answer finds it in Engine.Requests. What follows may change it.
func (g *generation) file(outcome string) {
	before := g.rec.Outcome
	if before == "" {
		g.rec.Outcome = outcome
	}
	g.c.e.records.keep(g.rec)
	g.rec.Outcome = before
}

// die ends the engine, as an assertion in EngineCore does. The record is filed before anybody can notice.
func (g *generation) die(outcome string) {
	g.rec.Outcome = outcome
	g.file("")
	g.c.kill()
}

// left ends a request whose client has gone. It returns false if the engine is ending, and then
// nothing more is done.
func (g *generation) left() bool {
	g.x.last = true
	if g.c.life.Err() != nil {
		g.rec.Outcome = "dead"
		return false
	}
	g.rec.Outcome = "aborted"
	g.c.metrics.finished(g, "abort")
	g.emit(PhaseAborted, 0)
	return true
}

func (g *generation) emit(phase Phase, index int) {
	g.c.e.emit(phase, g.rec.RequestID, index)
}

// answerWhole writes the answer that is not streamed.
func (g *generation) answerWhole(ctx context.Context) error {
	body := g.api.appendAnswer(nil, g)
	if g.faults.has(FaultBadJSON) {
		body = body[:len(body)/2]
	}
	if f, ok := g.faults.find(FaultTruncate); ok && f.At < len(body) {
		if err := g.x.head(http.StatusOK, "application/json", len(body)); err != nil {
			return err
		}
		_ = g.x.write(body[:f.At]) // broken off in any case
		return g.breakOff(f)
	}
	if g.faults.has(FaultCorrupt) {
		g.rec.Outcome = "fault:" + FaultCorrupt
		spoil(body)
	}
	g.rec.Status, g.rec.Tokens = http.StatusOK, g.outputTokens()
	g.file("ok")
	err := g.x.head(http.StatusOK, "application/json", len(body))
	if err == nil {
		err = g.writeDripping(ctx, body)
	}
	if err != nil {
		g.rec.Status, g.rec.Tokens = 0, 0
	}
	return err
}
