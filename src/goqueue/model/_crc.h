/* CRC-32C, the checksum of batches: by the processor's instruction for it, or by a table. */
#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_CRC_INSTRUCTION 1
#else
#define HAS_CRC_INSTRUCTION 0
#endif

enum { CRC_POLYNOMIAL = 0x82F63B78 };

static uint32_t crc_table[256];

static void fill_crc_table(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? (crc >> 1) ^ (uint32_t)CRC_POLYNOMIAL : crc >> 1;
        crc_table[byte] = crc;
    }
}

/* Where bytes begin and how many of them are still to be added to their checksum. */
typedef struct {
    const uint8_t *at;
    Py_ssize_t left;
    uint64_t crc;
} lane_t;

static void finish_plainly(lane_t *lane) {
    uint32_t crc = (uint32_t)lane->crc;
    for (; lane->left > 0; lane->left--)
        crc = (crc >> 8) ^ crc_table[(crc ^ *lane->at++) & 0xFF];
    lane->crc = crc;
}

#if HAS_CRC_INSTRUCTION
#define WITH_CRC __attribute__((target("sse4.2")))

static inline WITH_CRC void add_word(lane_t *lane) {
    uint64_t word;
    memcpy(&word, lane->at, sizeof word);
    lane->crc = __builtin_ia32_crc32di(lane->crc, word);
    lane->at += sizeof word;
    lane->left -= (Py_ssize_t)sizeof word;
}

static WITH_CRC void finish_fast(lane_t *lane) {
    while (lane->left >= (Py_ssize_t)sizeof(uint64_t))
        add_word(lane);
    for (; lane->left > 0; lane->left--)
        lane->crc = __builtin_ia32_crc32qi((uint32_t)lane->crc, *lane->at++);
}

static bool has_crc_instruction(void) { return __builtin_cpu_supports("sse4.2"); }
#else
static void finish_fast(lane_t *lane) { (void)lane; }
static bool has_crc_instruction(void) { return false; }
#endif
