// Package switchmlproto is generated from control/proto/switchml/switchml.proto:
// the control protocol of the public SwitchML project, for its controller's side
// (control/switchml) and a worker's side (worker).
package switchmlproto
