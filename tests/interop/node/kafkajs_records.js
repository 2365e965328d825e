// The Node client's part in the exchange of records between languages (../README.md has the rule for what record i is):
//
//   node kafkajs_records.js BOOTSTRAP write|read|read-group COUNT CODEC TOPIC...
//
// kafkajs reads in consumer groups only. So that reading can be tested without a group coordinator, `read` uses the
// classes below its consumer: its cluster, its connection to the broker and its decoder. `read-group` is the consumer.
'use strict';

const { Kafka, CompressionCodecs, CompressionTypes, logLevel } = require('kafkajs');
const Cluster = require('kafkajs/src/cluster');
const createSocketFactory = require('kafkajs/src/network/socketFactory');
const { createLogger } = require('kafkajs/src/loggers');
const silent = () => () => {};
const lz4 = require('lz4js');
const { ZstdCodec } = require('zstd-codec');

const FIRST_TIMESTAMP = 1700000000000;
const LARGE = 20000;
const BATCH = 250;
const PATIENCE_MS = 60000;

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy');
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  // The frames of the one pure JavaScript encoder are none that Kafka's own decoder takes: reading only.
  decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
});
const zstd = new Promise((resolve) => ZstdCodec.run((binding) => resolve(new binding.Streaming())));
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from((await zstd).compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from((await zstd).decompress(buffer)),
});

const TYPES = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};

function key(i) {
  if (i % 10 === 0 && i % 7 !== 0) return null;
  return i % 10 === 1 ? Buffer.alloc(0) : Buffer.from(`key-${i}`);
}

function value(i) {
  if (i % 7 === 0) return null;
  if (i % 7 === 1) return Buffer.alloc(0);
  const tail = Buffer.alloc(i % 1000 === 2 ? LARGE : i % 97);
  for (let j = 0; j < tail.length; j++) tail[j] = (i + 31 * j) & 0xff;
  return Buffer.concat([Buffer.from(`value-${i}-`), tail]);
}

// kafkajs cannot write a null header, and has an array where a name occurs more than once.
function headers(i, nulls) {
  switch (i % 5) {
    case 1:
      return { h: Buffer.from(`${i}`) };
    case 2:
      return { dup: [Buffer.from('a'), Buffer.from('b')] };
    case 3:
      return { null: nulls ? null : Buffer.alloc(0), empty: Buffer.alloc(0) };
    case 4:
      return { binary: Buffer.from([0, 0xff, i & 0xff]) };
    default:
      return {};
  }
}

function client(bootstrap) {
  return new Kafka({ clientId: 'interop', brokers: [bootstrap], logLevel: logLevel.NOTHING });
}

async function write(bootstrap, topic, count, codec) {
  const producer = client(bootstrap).producer({ idempotent: codec === 'gzip', createPartitioner: () => () => 0 });
  await producer.connect();
  try {
    for (let first = 0; first < count; first += BATCH) {
      const messages = [];
      for (let i = first; i < Math.min(first + BATCH, count); i++) {
        messages.push({ key: key(i), value: value(i), headers: headers(i, false), timestamp: `${FIRST_TIMESTAMP + i}` });
      }
      const [answer] = await producer.send({ topic, messages, acks: -1, compression: TYPES[codec] });
      if (Number(answer.baseOffset) !== first) throw new Error(`record ${first} is at ${answer.baseOffset}`);
    }
  } finally {
    await producer.disconnect();
  }
}

function same(a, b) {
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((item, i) => same(item, b[i]));
  return a === null || b === null ? a === b : Buffer.isBuffer(a) && Buffer.isBuffer(b) && a.equals(b);
}

function check(topic, i, message) {
  const wanted = headers(i, !topic.includes('nonull'));
  const names = Object.keys(wanted);
  const ok =
    Number(message.offset) === i &&
    Number(message.timestamp) === FIRST_TIMESTAMP + i &&
    same(message.key, key(i)) &&
    same(message.value, value(i)) &&
    Object.keys(message.headers).join() === names.join() &&
    names.every((name) => same(message.headers[name], wanted[name]));
  if (!ok) throw new Error(`${topic}: record ${i} came back as ${JSON.stringify(message)}`);
}

async function read(bootstrap, topic, count) {
  const cluster = new Cluster({
    logger: createLogger({ level: logLevel.NOTHING, logCreator: silent }),
    socketFactory: createSocketFactory(),
    brokers: [bootstrap],
    clientId: 'interop',
    connectionTimeout: 10000,
    requestTimeout: 30000,
    enforceRequestTimeout: true,
    metadataMaxAge: 300000,
    allowAutoTopicCreation: false,
    retry: {},
    offsets: new Map(),
  });
  await cluster.connect();
  try {
    await cluster.addTargetTopic(topic);
    const broker = await cluster.findBroker({ nodeId: cluster.findTopicPartitionMetadata(topic)[0].leader });
    const deadline = Date.now() + PATIENCE_MS;
    for (let next = 0; next < count; ) {
      if (Date.now() > deadline) throw new Error(`${topic}: only ${next} of ${count} records`);
      const partitions = [{ partition: 0, fetchOffset: `${next}`, maxBytes: 1048576 }];
      const answer = await broker.fetch({ maxWaitTime: 1000, minBytes: 1, topics: [{ topic, partitions }] });
      for (const message of answer.responses[0].partitions[0].messages) {
        if (Number(message.offset) >= next) check(topic, next++, message);
      }
    }
  } finally {
    await cluster.disconnect();
  }
}

async function readInGroup(bootstrap, topic, count) {
  const consumer = client(bootstrap).consumer({ groupId: `interop-${topic}`, allowAutoTopicCreation: false });
  await consumer.connect();
  try {
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    let next = 0;
    await new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${topic}: only ${next} of ${count} records`)), PATIENCE_MS);
      consumer.run({
        eachMessage: async ({ message }) => {
          try {
            check(topic, next++, message);
          } catch (error) {
            reject(error);
          }
          if (next === count) {
            clearTimeout(timer);
            resolve();
          }
        },
      });
    });
  } finally {
    await consumer.disconnect();
  }
}

async function main([bootstrap, mode, countText, codec, ...topics]) {
  const count = Number(countText);
  for (const topic of topics) {
    if (mode === 'write') await write(bootstrap, topic, count, codec);
    else if (mode === 'read') await read(bootstrap, topic, count);
    else await readInGroup(bootstrap, topic, count);
  }
  console.log(`ok: ${mode} ${count} records, ${topics.length} topics`);
}

main(process.argv.slice(2)).then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
