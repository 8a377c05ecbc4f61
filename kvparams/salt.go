package kvparams

// saltLead begins the member under which engines keep the KV of a prompt apart from that of others.
const saltLead = `,"cache_salt":`

// OwnSalt is the client's cache_salt, or nil if it has none. It is valid until Parse or Reset.
func (r *Request) OwnSalt() ([]byte, error) {
	raw := r.raw(fieldCacheSalt)
	switch {
	case raw == nil:
		return nil, nil
	case raw[0] != '"':
		return nil, wrongType("cache_salt", "a string")
	}
	return text(r.s.b, inner(r.vals[fieldCacheSalt])), nil
}

// Salt has the engines get this cache_salt on every leg, in place of the client's. It needs no escapes in JSON. Prompts
// with different salts have no hash of Blocks in common. Call it after Parse, and before anything that depends on it.
func (r *Request) Salt(salt string) {
	r.salt = append(append(append(append(r.salt[:0], saltLead...), '"'), salt...), '"')
}

// salted returns the edits of a body with the one for the salt, which needs room for it in own.
func (r *Request) salted(edits, own []edit) []edit {
	if len(r.salt) == 0 {
		return edits
	}
	return append(append(own[:0], edits...), edit{fieldCacheSalt, r.salt[len(saltLead):], r.salt})
}
