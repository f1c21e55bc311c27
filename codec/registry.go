package codec

import (
	"fmt"
	"math"
	"strings"
)

// All returns the table of codecs, by wire id. Block formats with other
// parameters and top-k with another ratio come from ByName, too.
func All() []Codec {
	return []Codec{
		noneCodec{},
		blockCodecs[0], blockCodecs[1],
		halfCodec{bf: false}, halfCodec{bf: true},
		blockCodecs[2], blockCodecs[3], blockCodecs[4], blockCodecs[5],
		int8Codec{},
		MSFP12.codec(),
		topkCodec{ratio: DefaultTopKRatio},
		qsgdCodec{},
		thcCodec{},
		losslessCodec{},
	}
}

// Default is the codec that is used when one is wanted and none is named.
const Default = "bfp16"

// ByName finds a codec by its name. Beside the names of All it takes
// "blockBeEmM" and "blockBeEmMs" (see [BlockSpec]) and "topk:R" with a ratio R
// in (0, 1], and "topk=K" for K elements a message. Unknown names give an error that wraps ErrUnknown and lists what
// there is.
func ByName(name string) (Codec, error) {
	for _, c := range All() {
		if c.Info().Name == name {
			return c, nil
		}
	}
	if r, ok := strings.CutPrefix(name, "topk:"); ok {
		return parseTopK(r)
	}
	if k, ok := strings.CutPrefix(name, "topk="); ok {
		return parseTopKCount(k)
	}
	if strings.HasPrefix(name, "block") {
		s, err := ParseBlockSpec(name)
		if err != nil {
			return nil, err
		}
		return s.codec(), nil
	}
	names := make([]string, 0, 16)
	for _, c := range All() {
		names = append(names, c.Info().Name)
	}
	return nil, fmt.Errorf("%w %q; there are %s, blockBeEmM[s], topk:R and topk=K", ErrUnknown, name, strings.Join(names, ", "))
}

// ByID finds a codec by its wire id. The decoders of block formats and top-k
// read their parameters from the message, so the id is enough to decode.
func ByID(id ID) (Codec, error) {
	all := All()
	if int(id) >= len(all) {
		return nil, fmt.Errorf("%w: wire id %d; ids 0 to %d are in use", ErrUnknown, id, len(all)-1)
	}
	return all[id], nil
}

// Param is what a receiver needs beside the wire id to make the same codec
// again with [ByParam]: of top-k how many of n elements a message has, of block
// formats the four bytes of their header in network byte order; 0 for all
// others.
func Param(c Codec, n int) uint32 {
	switch c := c.(type) {
	case topkCodec:
		return uint32(c.count(n))
	case blockSpecCodec:
		p := uint32(c.Block)<<24 | uint32(c.Exponent)<<16 | uint32(c.Mantissa)<<8
		if c.SignMagnitude {
			p |= 1
		}
		return p
	}
	return 0
}

// ByParam is the inverse of ID and [Param].
func ByParam(id ID, param uint32) (Codec, error) {
	switch id {
	case IDTopK:
		if param > math.MaxInt32 {
			return nil, fmt.Errorf("%w: parameter %#x of top-k", errHeader, param)
		}
		return NewTopKCount(int(param))
	case IDBlock:
		if param&0xff > 1 {
			return nil, fmt.Errorf("%w: parameter %#x of a block format", errHeader, param)
		}
		return NewBlock(BlockSpec{
			Block: int(param >> 24), Exponent: int(param >> 16 & 255), Mantissa: int(param >> 8 & 255), SignMagnitude: param&1 == 1,
		})
	}
	if param != 0 {
		return nil, fmt.Errorf("%w: wire id %d has no parameter, got %#x", errHeader, id, param)
	}
	return ByID(id)
}
