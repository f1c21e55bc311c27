package accl

// Fault says why a datagram was refused. The zero value is OK.
type Fault uint8

// The reasons, each with the drop reason that String gives. Those after Behind end the session: the receiver no longer
// knows where messages begin, or one is missing that will not come again.
const (
	OK          Fault = iota // "ok"
	UnknownPeer              // "accl-unknown-peer": the source address and port are no rank's
	ToStream                 // "accl-to-stream": for a kernel stream, and there is none here
	Behind                   // "accl-behind": a message that was here before, doubled on its way

	Short       // "accl-short": where a header must be, less than one
	Ragged      // "accl-ragged": not whole words of 64 bytes, or none
	TooLong     // "accl-too-long": more than 4096 bytes
	NotHeader   // "accl-not-a-header": where a header must be, bits are set that never are
	Rendezvous  // "accl-rendezvous": a rendezvous message, which has no meaning over UDP
	WrongRank   // "accl-wrong-rank": the header names another sender than the address does
	Empty       // "accl-empty": a message without elements
	OverSegment // "accl-over-segment": a message longer than the receiver's buffers
	Ahead       // "accl-ahead": a message before this one is missing: lost or overtaken
	WrongPiece  // "accl-wrong-piece": not as long as this place of the message demands: a datagram is missing
	HeaderFirst // "accl-header-inside": the next message begins before this one has ended: a datagram is missing
	PoolFull    // "accl-pool-full": no buffer is free for the message
	OutOfStep   // "accl-out-of-step": the session ended with an earlier fault

	// NumFaults is the number of values, for counters indexed by Fault.
	NumFaults = int(iota)
)

var faultNames = [NumFaults]string{
	OK:          "ok",
	UnknownPeer: "accl-unknown-peer",
	ToStream:    "accl-to-stream",
	Behind:      "accl-behind",
	Short:       "accl-short",
	Ragged:      "accl-ragged",
	TooLong:     "accl-too-long",
	NotHeader:   "accl-not-a-header",
	Rendezvous:  "accl-rendezvous",
	WrongRank:   "accl-wrong-rank",
	Empty:       "accl-empty",
	OverSegment: "accl-over-segment",
	Ahead:       "accl-ahead",
	WrongPiece:  "accl-wrong-piece",
	HeaderFirst: "accl-header-inside",
	PoolFull:    "accl-pool-full",
	OutOfStep:   "accl-out-of-step",
}

// String is the drop reason's name, in kebab case.
func (f Fault) String() string {
	if int(f) < NumFaults {
		return faultNames[f]
	}
	return "unknown-fault"
}

// Ends reports whether nothing of the same peer can be taken after it.
func (f Fault) Ends() bool { return f > Behind }
