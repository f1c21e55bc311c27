package bump

// Fault says why a frame, or an item of one, was refused. The zero value is OK.
type Fault uint8

// The faults, each with the drop reason that String gives.
const (
	OK          Fault = iota // "ok"
	Short                    // "bump-short": the frame ends before its header or before the length that it promises
	BadVersion               // "bump-version": another version
	BadKind                  // "bump-kind": a kind that there is not, or a reserved field that is not 0
	BadLength                // "bump-length": the items do not fill the length exactly, or a control message has another one
	BadChecksum              // "bump-checksum": damaged on the way
	BadItem                  // "bump-item": an item's size, form or type is none
	BadHeader                // "bump-header": an item's IPv4, UDP or TCP header contradicts itself or the item
	BadCodec                 // "bump-codec": a codec that there is not, or one that the element type does not allow
	BadPayload               // "bump-payload": the codec refuses the bytes
	TooLong                  // "bump-too-long": the host's frame is longer than the host's port takes
	NoRoom                   // "bump-no-room": the host's port does not keep up

	// NumFaults is the number of values, for counters indexed by Fault.
	NumFaults = int(iota)
)

var faultNames = [NumFaults]string{
	"ok", "bump-short", "bump-version", "bump-kind", "bump-length", "bump-checksum", "bump-item", "bump-header",
	"bump-codec", "bump-payload", "bump-too-long", "bump-no-room",
}

// String is the drop reason's name, in kebab case.
func (f Fault) String() string {
	if int(f) < NumFaults {
		return faultNames[f]
	}
	return "unknown-fault"
}
