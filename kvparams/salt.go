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
	r.adds.salt = append(append(append(append(r.adds.salt[:0], saltLead...), '"'), salt...), '"')
}

// TellIDs has decode engines tell the ids of the tokens of prompt and answer, or not. Call it after Parse.
func TellIDs(r *Request, tell bool) { r.adds.ids = tell }

// added is what xpyd adds to the bodies of legs, whatever the connector.
type added struct {
	salt []byte // the member cache_salt with a leading comma, see Salt; empty if engines get the client's
	ids  bool   // see TellIDs
}

var tellIDs = edit{fieldReturnTokenIDs, []byte("true"), []byte(`,"return_token_ids":true`)}

// to returns the edits of a body with those of a, which need room in own. The prefill leg has edits of its own for the ids.
func (a *added) to(edits, own []edit) []edit {
	ids := a.ids && find(edits, fieldReturnTokenIDs) == nil
	if len(a.salt) == 0 && !ids {
		return edits
	}
	own = append(own[:0], edits...)
	if len(a.salt) > 0 {
		own = append(own, edit{fieldCacheSalt, a.salt[len(saltLead):], a.salt})
	}
	if ids {
		own = append(own, tellIDs)
	}
	return own
}
