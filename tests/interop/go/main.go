// The Go client's part in the exchange of records between languages (../README.md has the rule for what record i is):
//
//	franz BOOTSTRAP write|read COUNT CODEC TOPIC...
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	firstTimestamp = 1_700_000_000_000
	large          = 20_000
	patience       = 60 * time.Second
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func key(i int) []byte {
	switch {
	case i%10 == 0 && i%7 != 0:
		return nil
	case i%10 == 1:
		return []byte{}
	}
	return []byte(fmt.Sprintf("key-%d", i))
}

func value(i int) []byte {
	switch i % 7 {
	case 0:
		return nil
	case 1:
		return []byte{}
	}
	tail := i % 97
	if i%1000 == 2 {
		tail = large
	}
	v := []byte(fmt.Sprintf("value-%d-", i))
	for j := 0; j < tail; j++ {
		v = append(v, byte(i+31*j))
	}
	return v
}

func headers(i int, nulls bool) []kgo.RecordHeader {
	switch i % 5 {
	case 1:
		return []kgo.RecordHeader{{Key: "h", Value: []byte(strconv.Itoa(i))}}
	case 2:
		return []kgo.RecordHeader{{Key: "dup", Value: []byte("a")}, {Key: "dup", Value: []byte("b")}}
	case 3:
		null := []byte{}
		if nulls {
			null = nil
		}
		return []kgo.RecordHeader{{Key: "null", Value: null}, {Key: "empty", Value: []byte{}}}
	case 4:
		return []kgo.RecordHeader{{Key: "binary", Value: []byte{0, 0xff, byte(i)}}}
	}
	return nil
}

// same tells null from empty.
func same(a, b []byte) bool {
	return (a == nil) == (b == nil) && bytes.Equal(a, b)
}

func write(bootstrap, topic string, count int, codec string) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ProducerBatchCompression(codecs[codec]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	failed := make(chan error, 1)
	report := func(err error) {
		select {
		case failed <- err:
		default:
		}
	}
	for i := 0; i < count; i++ {
		wanted := int64(i)
		record := &kgo.Record{
			Topic: topic, Partition: 0, Key: key(i), Value: value(i), Headers: headers(i, true),
			Timestamp: time.UnixMilli(firstTimestamp + wanted),
		}
		client.Produce(ctx, record, func(r *kgo.Record, err error) {
			if err != nil {
				report(err)
			} else if r.Offset != wanted {
				report(fmt.Errorf("record %d is at %d", wanted, r.Offset))
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

func check(topic string, i int, r *kgo.Record) error {
	wanted := headers(i, !strings.Contains(topic, "nonull"))
	ok := r.Offset == int64(i) && r.Timestamp.UnixMilli() == firstTimestamp+int64(i) &&
		same(r.Key, key(i)) && same(r.Value, value(i)) && len(r.Headers) == len(wanted)
	for h := 0; ok && h < len(wanted); h++ {
		ok = r.Headers[h].Key == wanted[h].Key && same(r.Headers[h].Value, wanted[h].Value)
	}
	if !ok {
		return fmt.Errorf("%s: record %d came back as %+v", topic, i, r)
	}
	return nil
}

// read reads all topics at once, so that fetches and their sessions hold many partitions.
func read(bootstrap string, topics []string, count int) error {
	start := map[string]map[int32]kgo.Offset{}
	for _, topic := range topics {
		start[topic] = map[int32]kgo.Offset{0: kgo.NewOffset().AtStart()}
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumePartitions(start))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	next := map[string]int{}
	for left := count * len(topics); left > 0; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("of %d records each only %v: %w", count, next, err)
		}
		for records := fetches.RecordIter(); !records.Done(); left-- {
			r := records.Next()
			if err := check(r.Topic, next[r.Topic], r); err != nil {
				return err
			}
			next[r.Topic]++
		}
	}
	return nil
}

func run(arguments []string) error {
	if len(arguments) < 5 {
		return fmt.Errorf("usage: franz BOOTSTRAP write|read COUNT CODEC TOPIC")
	}
	count, err := strconv.Atoi(arguments[2])
	if err != nil {
		return err
	}
	if arguments[1] == "read" {
		err = read(arguments[0], arguments[4:], count)
	} else {
		for _, topic := range arguments[4:] {
			if err = write(arguments[0], topic, count, arguments[3]); err != nil {
				break
			}
		}
	}
	if err != nil {
		return err
	}
	fmt.Printf("ok: %s %d records, %d topics\n", arguments[1], count, len(arguments)-4)
	return nil
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
