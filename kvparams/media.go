package kvparams

import "github.com/cespare/xxhash/v2"

// maxMedia is how many images, sounds and videos of a request are encoded apart. The engine behind the
// prefill or decode leg encodes all of a request that has more. Further ones pass for text.
const maxMedia = 256

// encodes reports whether requests of the API can have parts that an encode leg takes. Answers of the
// responses API have no ec_transfer_params, so its parts stay with the other legs.
func (a API) encodes() bool { return a == Chat || a == Messages }

// readMessage validates the message at i and notes the images, sounds and videos in its content.
func (r *Request) readMessage(i, depth int) (end int) {
	s := &r.s
	if s.byteAt(i) != '{' {
		return s.value(i, depth)
	}
	in := s.enter(i, depth)
	for in.next(s) {
		if s.byteAt(in.at) == '[' && r.holdsParts(r.decode(&in)) {
			in.done(r.readParts(in.at, in.depth, false))
			continue
		}
		in.done(s.value(in.at, in.depth))
	}
	return in.pos
}

// holdsParts reports whether a member of this name of a message may be a list of parts. output is a tool's, of the
// responses API.
func (r *Request) holdsParts(name []byte) bool {
	return string(name) == "content" || r.api == Responses && string(name) == "output"
}

// readParts validates a list of parts. within says that it is the result of a tool, a part of Anthropic's API itself.
func (r *Request) readParts(i, depth int, within bool) (end int) {
	s := &r.s
	in := s.enter(i, depth)
	for in.next(s) {
		in.done(r.readPart(in.at, in.depth, within))
	}
	return in.pos
}

// readPart validates a part of a message's content.
func (r *Request) readPart(i, depth int, within bool) (end int) {
	s := &r.s
	if s.byteAt(i) != '{' {
		return s.value(i, depth)
	}
	var media, named medium // named is what it would hold
	var of sense
	var id uint64
	before, held := len(r.parts), r.held
	in := s.enter(i, depth)
	for in.next(s) {
		name := r.decode(&in)
		kind, known := string(name) == "type", string(name) == "uuid"
		if what := mediumOf(name); r.api != Messages && what != notMedia {
			named, of = max(named, what), max(of, senseOf(name))
			if s.byteAt(in.at) != 'n' && !r.empty(in.at) {
				media = max(media, what)
			}
		}
		if r.api == Messages && !within && s.byteAt(in.at) == '[' && string(name) == "content" {
			in.done(r.readParts(in.at, in.depth, true))
			continue
		}
		end := s.value(in.at, in.depth)
		if (kind || known) && end > 0 && s.b[in.at] == '"' {
			switch value := text(s.b, inner(span{in.at, end})); {
			case known && r.api == Chat:
				id = max(1, xxhash.Sum64(value))
			case kind && r.api == Messages:
				media = mediumOfType(value)
			case kind:
				named, of = max(named, mediumOf(value)), max(of, senseOf(value))
			}
		}
		in.done(end)
	}
	alone := id != 0 && media == notMedia && named != notMedia
	if in.pos > 0 && (media != notMedia || alone) {
		r.parts, r.held = r.parts[:before], held // those within it are a part of it
		r.held.add(of)
		r.noteMedia(item{span{i, in.pos}, id, alone}, media == rawMedia && !within)
	}
	return in.pos
}

// noteMedia notes a part that is an image, sound or video. raw says that an encode leg can encode it.
func (r *Request) noteMedia(p item, raw bool) {
	if len(r.parts) < maxMedia {
		r.parts = append(r.parts, p)
	}
	if raw && r.FindMedia && r.api.encodes() && len(r.media) <= maxMedia {
		r.media = append(r.media, p.span)
	}
}

// item is an image, sound or video of the prompt. id is a hash of its uuid, by which vLLM keeps it in its cache, or 0. alone
// says that the uuid is all of it, so that only an engine that has had it whole knows it:
// https://docs.vllm.ai/en/latest/features/multimodal_inputs/#cached-inputs
type item struct {
	span
	id    uint64
	alone bool
}

// empty reports whether the value at i is an empty object.
func (r *Request) empty(i int) bool {
	return r.s.byteAt(i) == '{' && r.s.byteAt(r.s.space(i+1)) == '}'
}

// MediaIDs appends hashes of the uuids of images, sounds and videos to dst: all of them, or those that stand alone.
func (r *Request) MediaIDs(dst []uint64, alone bool) []uint64 {
	for _, p := range r.parts {
		if p.id != 0 && (p.alone || !alone) {
			dst = append(dst, p.id)
		}
	}
	return dst
}

// medium is what a part of a message holds.
type medium uint8

const (
	notMedia     medium = iota
	encodedMedia        // what the client has encoded itself, and files
	rawMedia            // what engines encode
)

// Parts is how many images, sounds and videos a prompt has. Documents count as images.
type Parts struct{ Images, Sounds, Videos int }

func (p *Parts) add(of sense) {
	switch of {
	case seenAndHeard:
		p.Videos++
	case heard:
		p.Sounds++
	default:
		p.Images++
	}
}

// Parts is how many images, sounds and videos the prompt has.
func (r *Request) Parts() Parts { return r.held }

// sense is what a part of a message is for.
type sense uint8

const (
	seen sense = iota
	heard
	seenAndHeard
)

// senseOf is the sense of a part with a member of this name.
func senseOf(name []byte) sense {
	switch string(name) {
	case "audio_url", "input_audio", "audio_embeds":
		return heard
	case "video_url":
		return seenAndHeard
	}
	return seen
}

// mediumOf is the medium of a part with a member of this name. file_data is of the responses API.
func mediumOf(name []byte) medium {
	switch string(name) {
	case "image_url", "audio_url", "video_url", "input_audio":
		return rawMedia
	case "image_embeds", "audio_embeds", "file_data":
		return encodedMedia
	}
	return notMedia
}

// mediumOfType is the medium of a part of Anthropic's API with this type.
func mediumOfType(kind []byte) medium {
	switch string(kind) {
	case "image":
		return rawMedia
	case "document":
		return encodedMedia
	}
	return notMedia
}

// Media is how many images, sounds and videos of the request an encode leg can encode. It is 0 without
// FindMedia.
func (r *Request) Media() int {
	if len(r.media) > maxMedia {
		return 0
	}
	return len(r.media)
}

// AppendEncode appends the body of an encode leg: a message without text that has the items of Media from
// first up to, but not including, last. Each item stays as the client wrote it, with the options by which
// engines decode media, because the engines find an encoding by a hash of these.
func (r *Request) AppendEncode(dst Segments, first, last int) Segments {
	dst = dst.add([]byte(`{"max_tokens":1,"stream":false,`))
	if model := r.raw(fieldModel); model != nil {
		dst = dst.add([]byte(`"model":`)).add(model).add([]byte(`,`))
	}
	if priority := r.raw(fieldPriority); priority != nil {
		dst = dst.add([]byte(`"priority":`)).add(priority).add([]byte(`,`))
	}
	for _, m := range r.rendered {
		switch name := m.name.of(r.s.b); string(name) {
		case "mm_processor_kwargs", "media_io_kwargs":
			dst = dst.add([]byte(`"`)).add(name).add([]byte(`":`)).add(m.val.of(r.s.b)).add([]byte(`,`))
		}
	}
	dst = dst.add([]byte(`"messages":[{"role":"user","content":[`))
	for i := first; i < last; i++ {
		if i > first {
			dst = dst.add([]byte(`,`))
		}
		dst = dst.add(r.media[i].of(r.s.b))
	}
	return dst.add([]byte(`]}]}`))
}

// AppendEncodings inserts members, the members of ec_transfer_params, into the body of a leg. This package
// has made that body from the request.
func (r *Request) AppendEncodings(body Segments, members []byte) Segments {
	end := body[len(body)-1]
	return body[:len(body)-1].add([]byte(`,"ec_transfer_params":{`)).add(members).add([]byte(`}`)).add(end)
}

// Encodings returns the members of ec_transfer_params in the answer to an encode leg: an object for each
// encoding, named by its hash. It returns nil if the answer has none, as when engines keep encodings in a
// shared place. It calls place for each host from which the next leg's engine would fetch one. place
// returns false for a host to which no engine may connect. To replace the host, it returns a name or
// address that needs no escapes in JSON. If place replaces no host, the members alias body.
func Encodings(body []byte, place func(host []byte) (instead string, ok bool)) (members []byte, err error) {
	var s scanner
	s.reset(body)
	i := s.space(0)
	if s.byteAt(i) != '{' {
		s.fail(i, "expected an object")
		return nil, s.answerError()
	}
	w := s.enter(i, 0)
	for met := false; w.next(&s); {
		if string(w.name(body)) != "ec_transfer_params" || s.byteAt(w.at) == 'n' {
			w.done(s.value(w.at, w.depth))
			continue
		}
		if met || s.byteAt(w.at) != '{' {
			return nil, badEncodings("ec_transfer_params must stand once and be an object")
		}
		met = true
		end, moved, err := s.encodings(w.at, w.depth, place)
		if err != nil {
			return nil, err
		}
		if w.done(end); end > 0 && s.byteAt(s.space(w.at+1)) != '}' {
			members = replaced(body, span{w.at + 1, end - 1}, moved)
		}
	}
	return members, s.finish(w.pos)
}

// hostEdit is the text of a host that another one replaces.
type hostEdit struct {
	span
	instead string
}

// replaced is a part of body with the edits, which are in order. Without edits it aliases body.
func replaced(body []byte, part span, edits []hostEdit) []byte {
	if len(edits) == 0 {
		return part.of(body)
	}
	var text []byte
	for _, e := range edits {
		text = append(append(text, body[part.at:e.at]...), e.instead...)
		part.at = e.end
	}
	return append(text, part.of(body)...)
}

// encodings validates the object of all encodings at i. It returns the hosts in it that are to be replaced.
func (s *scanner) encodings(i, depth int, place func(host []byte) (instead string, ok bool)) (end int, moved []hostEdit, err error) {
	w := s.enter(i, depth)
	for w.next(s) {
		if s.byteAt(w.at) != '{' {
			return -1, nil, badEncodings("each encoding must be an object")
		}
		in := s.enter(w.at, w.depth)
		for in.next(s) {
			end := s.value(in.at, in.depth)
			if end > 0 && string(in.name(s.b)) == "peer_host" {
				if s.b[in.at] != '"' {
					return -1, nil, badEncodings("peer_host must be a string")
				}
				instead, ok := place(text(s.b, inner(span{in.at, end})))
				if !ok {
					return -1, nil, badEncodings("peer_host is not in kv.allow_hosts")
				}
				if instead != "" {
					moved = append(moved, hostEdit{inner(span{in.at, end}), instead})
				}
			}
			in.done(end)
		}
		w.done(in.pos)
	}
	return w.pos, moved, nil
}

func badEncodings(why string) error {
	return &AnswerError{Code: CodeHandoff, Member: "ec_transfer_params", Message: "encode answer: " + why}
}
