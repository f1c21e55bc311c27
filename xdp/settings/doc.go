// Package settings sets up a netdev for the time that a NIC runs on it, and sets it back exactly.
//
// What can be set: the number of queues, ring sizes, features (ethtool's channels, rings and features), which fields
// receive-side scaling hashes, and rules that bring a UDP port's frames to a queue (ntuple filters). The first three are
// what somebody asked for, and fail when the driver refuses; the last two are a hint for speed, and a driver
// without them is left alone.
//
// # Undoing
//
// A process can be killed, so that nothing can be promised to run at its end. Each change is therefore written to a
// file, with what was there before, before it is made:
//
//	$GRADNIC_STATE (or /run/gradnic)/<network namespace>-<netdev>.json
//
// [Applied.Undo] sets back in reverse order, and removes the file. After a kill, the next [Apply] on the netdev or
// [Restore] does: `gradnic restore`, or the ExecStopPost of a service. What somebody else has changed meanwhile is left
// as it is; a netdev that was deleted, or made again, has nothing to be set back.
package settings
