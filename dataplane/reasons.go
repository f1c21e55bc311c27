package dataplane

import (
	"gradnic/aggregation"
	"gradnic/wire/accl"
	"gradnic/wire/bump"
	"gradnic/wire/inet"
	"gradnic/wire/layout"
	"gradnic/wire/native"
	"gradnic/wire/ring"
	"gradnic/wire/switchml"
)

// Reason says why a frame was dropped. Its String is the name that counters and tools show, in kebab case. The
// faults of the wire packages and the invalid outcomes of aggregation are reasons of their own, under their names.
type Reason uint8

// Where each family of reasons starts. Value 0 of each family is its "no fault" and is never counted.
const (
	reasonInet     = 0
	reasonSwitchML = reasonInet + Reason(inet.NumFaults)
	reasonNative   = reasonSwitchML + Reason(switchml.NumFaults)
	reasonBump     = reasonNative + Reason(native.NumFaults)
	reasonRing     = reasonBump + Reason(bump.NumFaults)
	reasonACCL     = reasonRing + Reason(ring.NumFaults)
	reasonLayout   = reasonACCL + Reason(accl.NumFaults)
	reasonOutcome  = reasonLayout + Reason(layout.NumFaults)
	reasonOwn      = reasonOutcome + Reason(aggregation.NumOutcomes)
)

// The data plane's own reasons.
const (
	NotForUs        = reasonOwn + iota // another destination MAC or IP address
	UnknownProtocol                    // IPv4, but neither UDP nor ICMP
	UnknownPort                        // UDP to a port that no protocol listens on
	UnknownWorker                      // a source address that belongs to no job
	WrongSize                          // a legal number of elements, but not the job's
	HandoffFull                        // the lane that owns the slot does not keep up
	TransmitFull                       // the port that the frame should leave by does not take it
	NoFrame                            // no free chunk for a copy
	PortUnknown                        // the port of the receiver is not known
	PortBroken                         // the kernel refuses to transmit on the port
	ImpairedIngress                    // lost on purpose before anything looked at it
	ImpairedEgress                     // lost on purpose on its way out
	Chained                            // one piece of a frame larger than a chunk
	UnknownJob                         // a native message of a job that there is not
	WrongType                          // a native message of another element type than the job's
	WrongDirection                     // a native message that only the network sends
	WrongCodec                         // a native message compressed otherwise than the job says
	WrongLayout                        // a message in another form than its job's (Config.Layouts)
	WrongTag                           // a native message without the tag of its worker, or with one that the job has no key for
	Replayed                           // a native message whose counter was used before
	NotSummed                          // a contribution that the kernel should have added up, and did not: of a frame that is no contribution

	numReasons = int(iota + reasonOwn)
)

var ownNames = [...]string{
	"not-for-us", "unknown-protocol", "unknown-port", "unknown-worker", "wrong-size", "handoff-full", "tx-full",
	"no-frame", "port-unknown", "port-broken", "impaired-ingress", "impaired-egress", "chained",
	"unknown-job", "wrong-type", "wrong-direction", "wrong-codec", "wrong-layout", "wrong-tag", "replayed", "not-summed",
}

// String returns the reason's name.
func (r Reason) String() string {
	switch {
	case r < reasonSwitchML:
		return inet.Fault(r - reasonInet).String()
	case r < reasonNative:
		return switchml.Fault(r - reasonSwitchML).String()
	case r < reasonBump:
		return native.Fault(r - reasonNative).String()
	case r < reasonRing:
		return bump.Fault(r - reasonBump).String()
	case r < reasonACCL:
		return ring.Fault(r - reasonRing).String()
	case r < reasonLayout:
		return accl.Fault(r - reasonACCL).String()
	case r < reasonOutcome:
		return layout.Fault(r - reasonLayout).String()
	case r < reasonOwn:
		return aggregation.Outcome(r - reasonOutcome).String()
	case int(r) < numReasons:
		return ownNames[r-reasonOwn]
	}
	return "unknown-reason"
}

// BumpReason is the reason of a bump's fault, which is not its OK.
func BumpReason(f bump.Fault) Reason { return reasonBump + Reason(f) }

// RingReason is the reason of a fault of the ring, which is not its OK.
func RingReason(f ring.Fault) Reason { return reasonRing + Reason(f) }

// ACCLReason is the reason of a fault of ACCL's wire, which is not its OK.
func ACCLReason(f accl.Fault) Reason { return reasonACCL + Reason(f) }

// Reasons returns the names of all reasons that can be counted.
func Reasons() []string {
	var names []string
	for r := Reason(0); int(r) < numReasons; r++ {
		if r == reasonInet || r == reasonSwitchML || r == reasonNative || r == reasonBump || r == reasonRing || r == reasonACCL || r == reasonLayout || (r >= reasonOutcome && r <= reasonOutcome+Reason(aggregation.Duplicate)) {
			continue
		}
		names = append(names, r.String())
	}
	return names
}
