// Package msgpack reads and writes the little of MessagePack that the KV events of engines are made of. It takes nothing
// from what it reads but numbers and slices, so a payload that lies about a length costs nothing.
package msgpack

import (
	"encoding/binary"
	"math"
)

// deepest is how many arrays and maps may stand in each other.
const deepest = 16

// Reader reads the values in B, which it shortens. After a fault, Bad is set and all that follows is empty.
type Reader struct {
	B   []byte
	Bad bool
}

// Fail ends the reading.
func (r *Reader) Fail() { r.Bad, r.B = true, nil }

// take returns the next n bytes.
func (r *Reader) take(n uint64) []byte {
	if n > uint64(len(r.B)) {
		r.Fail()
		return nil
	}
	was := r.B[:n]
	r.B = r.B[n:]
	return was
}

// number reads n bytes as an unsigned integer.
func (r *Reader) number(n uint64) (x uint64) {
	for _, c := range r.take(n) {
		x = x<<8 | uint64(c)
	}
	return x
}

// Kind is what a value is.
type Kind uint8

// The kinds.
const (
	Nil Kind = iota
	Bool
	Int
	Float
	Bytes // also text
	Array
	Map
	Ext
)

// Value is a value, or the head of an array or a map, whose elements follow.
type Value struct {
	Kind  Kind
	N     uint64 // the integer, or the number of elements
	Bytes []byte
}

// Next reads a value, or the head of an array or a map.
func (r *Reader) Next() Value {
	head := r.take(1)
	if len(head) == 0 {
		return Value{}
	}
	switch c := head[0]; {
	case c < 0x80:
		return Value{Kind: Int, N: uint64(c)}
	case c < 0x90:
		return Value{Kind: Map, N: uint64(c & 0x0f)}
	case c < 0xa0:
		return Value{Kind: Array, N: uint64(c & 0x0f)}
	case c < 0xc0:
		return Value{Kind: Bytes, Bytes: r.take(uint64(c & 0x1f))}
	case c >= 0xe0:
		return Value{Kind: Int, N: uint64(int64(int8(c)))}
	default:
		return r.long(c)
	}
}

// long reads a value whose head says how long its length or its number is.
func (r *Reader) long(c byte) Value {
	switch c {
	case 0xc0:
		return Value{}
	case 0xc2, 0xc3:
		return Value{Kind: Bool, N: uint64(c & 1)}
	case 0xc4, 0xc5, 0xc6:
		return Value{Kind: Bytes, Bytes: r.take(r.number(1 << (c - 0xc4)))}
	case 0xd9, 0xda, 0xdb:
		return Value{Kind: Bytes, Bytes: r.take(r.number(1 << (c - 0xd9)))}
	case 0xc7, 0xc8, 0xc9:
		n := r.number(1 << (c - 0xc7))
		return Value{Kind: Ext, Bytes: r.take(n + 1)}
	case 0xca, 0xcb:
		return Value{Kind: Float, N: r.number(4 << (c - 0xca))}
	case 0xcc, 0xcd, 0xce, 0xcf:
		return Value{Kind: Int, N: r.number(1 << (c - 0xcc))}
	case 0xd0:
		return Value{Kind: Int, N: uint64(int64(int8(r.number(1))))}
	case 0xd1:
		return Value{Kind: Int, N: uint64(int64(int16(r.number(2))))}
	case 0xd2:
		return Value{Kind: Int, N: uint64(int64(int32(r.number(4))))}
	case 0xd3:
		return Value{Kind: Int, N: r.number(8)}
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8:
		return Value{Kind: Ext, Bytes: r.take(1 + 1<<(c-0xd4))}
	case 0xdc, 0xdd:
		return Value{Kind: Array, N: r.number(2 << (c - 0xdc))}
	case 0xde, 0xdf:
		return Value{Kind: Map, N: r.number(2 << (c - 0xde))}
	}
	r.Fail()
	return Value{}
}

// skip reads over the elements of v.
func (r *Reader) skip(v Value, depth int) {
	if v.Kind != Array && v.Kind != Map {
		return
	}
	n := v.N
	if v.Kind == Map {
		n *= 2
	}
	if depth == 0 || n > uint64(len(r.B)) { // each element has a byte or more
		r.Fail()
		return
	}
	for ; n > 0 && !r.Bad; n-- {
		r.skip(r.Next(), depth-1)
	}
}

// Raw reads a whole value and returns its bytes.
func (r *Reader) Raw() []byte {
	was := r.B
	r.skip(r.Next(), deepest)
	if r.Bad {
		return nil
	}
	return was[:len(was)-len(r.B)]
}

// List reads the head of an array. Anything else is skipped and counts as an empty one.
func (r *Reader) List() uint64 {
	v := r.Next()
	if v.Kind != Array {
		r.skip(v, deepest)
		return 0
	}
	if v.N > uint64(len(r.B)) {
		r.Fail()
		return 0
	}
	return v.N
}

// Struct reads the head of a struct, which msgspec writes as a map by the names of its fields or as an array in their order.
// Anything else is a fault.
func (r *Reader) Struct() (fields int, named bool) {
	v := r.Next()
	if v.Kind != Array && v.Kind != Map || v.N > uint64(len(r.B)) {
		r.Fail()
		return 0, false
	}
	return int(v.N), v.Kind == Map
}

// Scalar reads a value that is no array and no map. Those are skipped and count as nil.
func (r *Reader) Scalar() Value {
	v := r.Next()
	if v.Kind == Array || v.Kind == Map {
		r.skip(v, deepest)
		return Value{}
	}
	return v
}

// AppendInts appends the integers of an array to dst.
func (r *Reader) AppendInts(dst []uint32) []uint32 {
	for n := r.List(); n > 0 && !r.Bad; n-- {
		dst = append(dst, uint32(r.Scalar().N))
	}
	return dst
}

// The rest writes msgpack, for engines that are simulated.

// AppendArray appends the head of an array of n elements.
func AppendArray(dst []byte, n int) []byte {
	return binary.BigEndian.AppendUint32(append(dst, 0xdd), uint32(n))
}

// AppendMap appends the head of a map of n members.
func AppendMap(dst []byte, n int) []byte { return append(dst, 0x80|byte(n)) }

// AppendText appends a text of fewer than 32 bytes.
func AppendText(dst []byte, text string) []byte {
	return append(append(dst, 0xa0|byte(len(text))), text...)
}

// AppendUint appends an integer.
func AppendUint(dst []byte, n uint64) []byte {
	if n < 0x80 {
		return append(dst, byte(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0xcf), n)
}

// AppendFloat appends a number.
func AppendFloat(dst []byte, x float64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, 0xcb), math.Float64bits(x))
}

// AppendNil appends nil.
func AppendNil(dst []byte) []byte { return append(dst, 0xc0) }
