// Package control is the NIC's control plane: it takes jobs from outside and
// gives them to the running data plane, and shows what is there.
//
// Two doors lead to one registry of jobs:
//
//   - control/api/v1 is gradnic's own gRPC API, behind the verbs show, install,
//     remove, set and clear; on a Unix socket, or on TCP when asked for.
//   - control/switchml is the controller of the public SwitchML project, for its
//     unchanged clients; off unless asked for.
//
// Server holds the registry and serves the first; the second is given a Server.
// Control translates and checks; it has no part in the way of a frame, and the
// data plane goes on when it is gone. Protobuf types stop at this edge.
//
// Installing is all or nothing, and idempotent by name: the same specification
// again changes nothing, another one under a used name is refused.
package control
