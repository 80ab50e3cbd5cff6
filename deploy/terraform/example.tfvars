region       = "eu-central-1"
subnet_ids   = ["subnet-aaaa", "subnet-bbbb", "subnet-cccc"]
ami          = "ami-0123456789abcdef0" # Debian 12, arm64
client_cidrs = ["10.0.0.0/8"]
settings = {
  topics = { partitions = 6 }
}
