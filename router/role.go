package router

// Role is what a backend does for a completion.
type Role uint8

// The roles. An engine that may have either of the first two is two Backends, see Twin.
const (
	Prefill Role = iota
	Decode
	Encode // it turns images and audio into embeddings before the prefill; see package encode
	roleCount

	// Both is the role of an Entry whose engine has no role of its own. No Backend has it.
	Both Role = 100
)

// Roles returns the roles of backends.
func Roles() []Role { return []Role{Prefill, Decode, Encode} }

// EntryRoles returns the roles of entries.
func EntryRoles() []Role { return append(Roles(), Both) }

// in reports whether an entry with the role is in the pool of the given one.
func (r Role) in(pool Role) bool { return r == pool || r == Both && pool != Encode }

// String is the role in labels and logs.
func (r Role) String() string {
	if r == Both {
		return "both"
	}
	return [roleCount]string{"prefill", "decode", "encode"}[r]
}

// partner is the role with whose backends those of r pair up. There is none for Encode, and the pool of
// roleCount is empty.
func (r Role) partner() Role {
	if r == Encode {
		return roleCount
	}
	return 1 - r
}
