package kvparams

import "bytes"

// maxHidden bounds the null KV fields that are dropped silently, and the work of comparing them.
const maxHidden = 16

func (r *Request) readSamplingParams(w *walk) (end int, err error) {
	found := false
	in := r.s.enter(w.at, w.depth)
	for in.next(&r.s) {
		if string(r.decode(&in)) != "extra_args" {
			if err := r.samplingMember(&in); err != nil {
				return -1, err
			}
			continue
		}
		if found {
			return -1, duplicate("sampling_params.extra_args")
		}
		found = true
		end := 0
		if r.s.byteAt(in.at) == '{' {
			end, err = r.readExtras(in.at, in.depth, groupExtraArgs)
		} else {
			end = r.s.value(in.at, in.depth)
		}
		if err != nil {
			return end, err
		}
		in.done(end)
	}
	if r.form().sampling != 0 && in.pos > 0 {
		r.marks = append(r.marks, mark{field: fieldClosing, group: groupSampling, nth: in.n, start: in.pos - 1})
	}
	return in.pos, nil
}

// samplingMember reads one member of sampling_params whose value starts at w.at.
func (r *Request) samplingMember(w *walk) error {
	f := r.form().samplingAt(r.decode(w))
	end := r.s.value(w.at, w.depth)
	if f != fieldOther {
		if r.seen.has(f) {
			return duplicate(groupSampling.prefix() + string(r.decode(w)))
		}
		r.seen |= 1 << f
		r.vals[f] = span{w.at, end}
		if f.editable() && end > 0 {
			r.marks = append(r.marks, mark{f, groupSampling, w.n - 1, w.key.at - 1, r.vals[f]})
		}
	}
	w.done(end)
	return nil
}

// readExtras finds KV parameters in an object whose members become vLLM's extra_args.
func (r *Request) readExtras(at, depth int, g group) (end int, err error) {
	in := r.s.enter(at, depth)
	for in.next(&r.s) {
		if name := r.decode(&in); kvAlias(name) {
			if err := r.hide(&in, g, name); err != nil {
				return -1, err
			}
			continue
		}
		in.done(r.s.value(in.at, in.depth))
	}
	return in.pos, nil
}

// hide takes a field that clients may not send. null and {} carry nothing, so they are dropped
// from every body. Anything else is refused.
func (r *Request) hide(w *walk, g group, name []byte) error {
	path := func() string { return g.prefix() + string(name) }
	for _, m := range r.marks {
		if m.field == fieldHidden && m.group == g && r.sameName(m, name) {
			return duplicate(path())
		}
	}
	void := r.s.void(w.at)
	if r.hidden++; !void || r.hidden > maxHidden {
		return unsupported(path())
	}
	end := r.s.value(w.at, w.depth)
	r.marks = append(r.marks, mark{fieldHidden, g, w.n - 1, w.key.at - 1, span{w.at, end}})
	w.done(end)
	return nil
}

// void reports whether the value at i is null or an empty object.
func (s *scanner) void(i int) bool {
	switch s.byteAt(i) {
	case 'n':
		return true // or it is no JSON, which the scan of the value finds
	case '{':
		return s.byteAt(s.space(i+1)) == '}'
	}
	return false
}

// sameName compares the name of m with a decoded one.
func (r *Request) sameName(m mark, name []byte) bool {
	i := m.start + 1
	return bytes.Equal(text(r.s.b, span{i, r.s.str(m.start) - 1}), name)
}

func (r *Request) denied(name []byte) bool {
	for _, d := range r.Deny {
		if string(name) == d {
			return true
		}
	}
	return false
}
