// Package store keeps the installed jobs in a file, so that they survive a restart
// and a kill of the process, and of the machine as far as its disk keeps what it
// says it has written.
//
// The file is a bbolt database: a write is there whole or not at all, and is on the
// disk when the call returns. Two buckets:
//
//	meta  schema -> decimal number; generation -> decimal number
//	jobs  name of the job -> CRC-32C of the rest, 4 octets little-endian, then the Record in JSON
//
// bbolt keeps no checksum of its data pages and maps the file, so a file that was
// cut outside (a copy that ended early, a full disk) would fail late and hard. Open
// therefore compares the file's length with what its valid meta page says, and every
// record with its checksum, and refuses with what would mend it.
package store
