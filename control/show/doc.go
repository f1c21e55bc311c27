// Package show is what a user sees of a NIC: one document a view, with stable
// JSON keys (docs/json-show.md), and the same as a table for people.
//
// Documents are made from the API's messages, so that protobuf's types and JSON
// mapping stay out of what scripts read: counts are numbers, reasons are keys.
package show
