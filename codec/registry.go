package codec

import (
	"fmt"
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
// in (0, 1]. Unknown names give an error that wraps ErrUnknown and lists what
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
	return nil, fmt.Errorf("%w %q; there are %s, blockBeEmM[s] and topk:R", ErrUnknown, name, strings.Join(names, ", "))
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
